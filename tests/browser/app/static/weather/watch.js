// Notes each price that the page shows, in order.
"use strict";
window.prices = [];
document.addEventListener("sharding:live", (event) => {
  const { value } = event.detail;
  if (event.target.dataset.liveField === "price") window.prices.push(value.price);
});

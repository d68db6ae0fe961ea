-- Which of these messages have taken effect here, though their rows lie in other journals.
SELECT t.id, t.partial FROM sharding_taken t WHERE t.id = ANY (%(messages)s::text[]);

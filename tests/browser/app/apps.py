"""The app of the browser's tests."""

from django.apps import AppConfig


class WeatherConfig(AppConfig):
    """Labelled `weather`, so that its stations are `weather.Station`."""

    name = "tests.browser.app"
    label = "weather"

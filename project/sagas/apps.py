"""The sagas as a Django app. The demo site does not install it: add it to INSTALLED_APPS to try
it.
"""

from django.apps import AppConfig


class SagasConfig(AppConfig):
    """Labelled `sagas`, so that its accounts are `sagas.Account`."""

    name = "project.sagas"
    label = "sagas"

"""All entities of this app: Django's autodiscovery finds them here."""

from project.sagas.accounts import Account as Account
from project.sagas.orders import Order as Order
from project.sagas.orders import Parcel as Parcel
from project.sagas.orders import Room as Room

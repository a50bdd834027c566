"""The MongoDB backend of tenure: instances on any number of hosts schedule together through a replica set."""

from tenure_mongo.backend import MongoBackend, from_url

__all__ = ["MongoBackend", "from_url"]

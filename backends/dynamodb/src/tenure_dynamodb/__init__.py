"""The DynamoDB backend of tenure: instances anywhere schedule together through one table."""

from tenure_dynamodb.backend import DynamoBackend, from_url
from tenure_dynamodb.clock import StoreClock
from tenure_dynamodb.driver import client_config

__all__ = ["DynamoBackend", "StoreClock", "client_config", "from_url"]

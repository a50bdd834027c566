"""The Postgres backend of tenure: instances schedule together through tables of a Postgres database."""

from tenure_postgres.backend import PostgresBackend, from_url
from tenure_postgres.fencing import guard

__all__ = ["PostgresBackend", "from_url", "guard"]

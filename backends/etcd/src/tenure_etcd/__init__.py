"""The etcd backend of tenure: instances on any number of hosts schedule together through an etcd cluster."""

from tenure_etcd.backend import EtcdBackend, from_url
from tenure_etcd.settings import Settings, Tls

__all__ = ["EtcdBackend", "Settings", "Tls", "from_url"]

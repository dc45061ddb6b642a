"""Real Kafka clients, used alike against any bootstrap address: a broker, or Weir before it."""

from tests.clients.aiokafka import Aiokafka
from tests.clients.kafka_python import KafkaPython
from tests.clients.librdkafka import Librdkafka, create_topic, create_topics
from tests.clients.model import Acks, Client, ClientError, Consumed, Produced, Record

__all__ = [
    "Acks",
    "Aiokafka",
    "Client",
    "ClientError",
    "Consumed",
    "KafkaPython",
    "Librdkafka",
    "Produced",
    "Record",
    "create_topic",
    "create_topics",
]

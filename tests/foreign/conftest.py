"""Class paths of Kafka's programs. Warnings of kafka-python, which uses functions that Python deprecates, are ignored."""

import warnings

import pytest

from kit.java import class_path

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record  # noqa: F401


@pytest.fixture(scope="session")
def broker() -> str:
    """Class path of a broker of Kafka 3.9.1."""
    return class_path("tests/foreign/broker", "tests/broker-3.9.1")


@pytest.fixture(scope="session")
def old_broker() -> str:
    """Class path of a broker of Kafka 2.4.1, with ZooKeeper."""
    return class_path("tests/foreign/broker", "tests/broker-2.4.1", "-Dkafka.version=2.4.1")


@pytest.fixture(scope="session")
def tool() -> str:
    """Class path of Kafka 4.3.0: its tools, and a broker."""
    return class_path("tests/foreign/decoders", "tests/decoders")


@pytest.fixture(scope="session")
def jars() -> str:
    """Class path of Kafka's client library, the one of the benchmarks."""
    return class_path("bench/java", "bench/java")

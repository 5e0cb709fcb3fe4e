"""A client of Kafka as a process: librdkafka may wait for ever when it lets go of a client, and no signal ends that.

python kafka_client.py PROPERTIES TOPIC make        the topic, unless it is there; exit code 1 without a broker
python kafka_client.py PROPERTIES TOPIC read        what is in its one partition, a line each
python kafka_client.py PROPERTIES TOPIC resources   the same behind the header `resource` of each, and a tab

PROPERTIES: librdkafka's, as JSON.
"""

import contextlib
import json
import os
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def make(properties: dict[str, Any], topic: str) -> bool:
    client = AdminClient(properties)
    with contextlib.suppress(KafkaException):
        if topic not in client.list_topics(timeout=2.0).topics:
            client.create_topics([NewTopic(topic, 1, 1)])[topic].result(10.0)
        return True
    return False


def read(properties: dict[str, Any], topic: str, *, resources: bool = False) -> bool:
    consumer = Consumer({**properties, "group.id": "reader", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=120)
    consumer.assign([partition])
    at = 0
    while at < end:
        messages = consumer.consume(1000, 10.0)
        assert messages, f"nothing comes after {at} of {end}"
        for message in messages:
            assert message.error() is None, message.error()
            if resources:
                resource = dict(message.headers() or ())["resource"]
                assert isinstance(resource, bytes)
                sys.stdout.buffer.write(resource + b"\t")
            sys.stdout.buffer.write((message.value() or b"") + b"\n")
            at = (message.offset() or 0) + 1
    return True


if __name__ == "__main__":
    given, name, what = sys.argv[1:]
    properties = json.loads(given)
    done = make(properties, name) if what == "make" else read(properties, name, resources=what == "resources")
    sys.stdout.flush()
    os._exit(0 if done else 1)

package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.unsafe.types.UTF8String;

/** A split of one topic partition, which it names. */
record KeyedSplit(String data, InternalRow partitionKey, String[] preferredLocations) implements HasPartitionKey {
  static KeyedSplit of(String data, JsonNode key, String[] hosts) {
    Object topic = key.get(0).isNull() ? null : UTF8String.fromString(key.get(0).asText());
    Object partition = key.get(1).isNull() ? null : key.get(1).asInt();
    return new KeyedSplit(data, new GenericInternalRow(new Object[] {topic, partition}), hosts);
  }
}

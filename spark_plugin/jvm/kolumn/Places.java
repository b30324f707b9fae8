package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The hosts that have most of what a split reads, where segments lie in HDFS. Without an answer of the file system there is no preference. */
final class Places {
  private static final Logger LOG = LoggerFactory.getLogger("kolumn.Places");
  private static final String[] NONE = {};
  private static final int MOST = 3;

  private final JsonNode ranges;
  private final Configuration conf;
  private final Map<String, BlockLocation[]> known = new HashMap<>();
  private boolean hasFailed;

  /** Of an answer with splits: of each range of each split that is in HDFS its path, first byte, and the one after its last. */
  Places(JsonNode answer, Configuration conf) {
    ranges = answer.path("places");
    this.conf = conf;
  }

  /** Of a split by its number, the host with the most bytes first. */
  String[] of(int split) {
    Map<String, Long> bytes = new HashMap<>();
    for (JsonNode range : ranges.path(split)) {
      add(range.get(0).asText(), range.get(1).asLong(), range.get(2).asLong(), bytes);
    }
    return hasFailed
        ? NONE
        : bytes.entrySet().stream()
            .sorted(Map.Entry.<String, Long>comparingByValue().reversed().thenComparing(Map.Entry.comparingByKey(Comparator.naturalOrder())))
            .limit(MOST)
            .map(Map.Entry::getKey)
            .toArray(String[]::new);
  }

  private void add(String path, long start, long end, Map<String, Long> bytes) {
    try {
      for (BlockLocation block : hasFailed ? new BlockLocation[0] : blocks(path)) {
        long shared = Math.min(end, block.getOffset() + block.getLength()) - Math.max(start, block.getOffset());
        if (shared > 0) {
          for (String host : block.getHosts()) {
            bytes.merge(host, shared, Long::sum);
          }
        }
      }
    } catch (IOException | RuntimeException e) {
      hasFailed = true;
      LOG.warn("tasks prefer no host, since it is not known where the blocks of {} are: {}", Given.withoutSecrets(path), e.toString());
    }
  }

  private BlockLocation[] blocks(String path) throws IOException {
    BlockLocation[] found = known.get(path);
    if (found == null) {
      Path file = new Path(path);
      found = file.getFileSystem(conf).getFileBlockLocations(file, 0, Long.MAX_VALUE);
      known.put(path, found == null ? new BlockLocation[0] : found);
    }
    return known.get(path);
  }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * What `kolumn.Places` says of a file of three blocks, each on one of three nodes of a real HDFS: the hosts of a split of each line of
 * ranges, first bytes and ends, that it is given.
 */
public final class WhereBlocksAre {
  private static final int BLOCK = 1 << 20;

  public static void main(String[] arguments) throws Exception {
    Configuration conf = new HdfsConfiguration();
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
    conf.setLong("dfs.blocksize", BLOCK);
    String[] hosts = {"one.test", "two.test", "three.test"};
    try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(arguments[0])).numDataNodes(3).hosts(hosts).build()) {
      DistributedFileSystem files = cluster.getFileSystem();
      ObjectMapper json = new ObjectMapper();
      String[] names = new String[3];
      for (int i = 0; i < 3; i++) {
        Path path = new Path("/kafka/orders-0/" + i + ".log");
        InetSocketAddress[] node = {cluster.getDataNodes().get(i).getXferAddress()};
        try (FSDataOutputStream out = files.create(path, null, true, 4096, (short) 1, BLOCK, null, node)) {
          out.write(new byte[BLOCK]);
        }
        names[i] = files.makeQualified(path).toString();
      }
      for (int i = 1; i < arguments.length; i++) {
        String splits = arguments[i].replace("FILE0", names[0]).replace("FILE1", names[1]).replace("FILE2", names[2]);
        JsonNode answer = json.readTree("{\"places\": " + splits + "}");
        Class<?> kind = Class.forName("kolumn.Places");
        Constructor<?> made = kind.getDeclaredConstructor(JsonNode.class, Configuration.class);
        Method of = kind.getDeclaredMethod("of", int.class);
        made.setAccessible(true);
        of.setAccessible(true);
        Object places = made.newInstance(answer, conf);
        String[][] found = new String[Math.max(1, answer.get("places").size())][];
        for (int split = 0; split < found.length; split++) {
          found[split] = (String[]) of.invoke(places, split);
        }
        System.out.println("RESULT " + json.writeValueAsString(found));
      }
    }
    System.exit(0);
  }
}

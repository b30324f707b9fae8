package kolumn;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/** An answer that is kept in a file of a checkpoint, so that it is the same whenever it is asked for. */
final class FirstAnswer {
  private FirstAnswer() {}

  static String of(String folder, String name, Supplier<String> ask) throws IOException {
    Path path = new Path(folder, name);
    FileSystem files = path.getFileSystem(SparkSession.active().sparkContext().hadoopConfiguration());
    try (FSDataInputStream kept = files.open(path)) {
      return new String(kept.readAllBytes(), StandardCharsets.UTF_8);
    } catch (FileNotFoundException e) {
      String answer = ask.get();
      // It has its name only when it is whole.
      Path whole = new Path(folder, "." + name + ".tmp");
      try (FSDataOutputStream made = files.create(whole, true)) {
        made.write(answer.getBytes(StandardCharsets.UTF_8));
      }
      if (!files.rename(whole, path)) {
        throw new IOException(whole + " cannot be renamed to " + path);
      }
      return answer;
    }
  }
}

package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public enum ScanType {
  INCLUSIVE,
  EXCLUSIVE
}

// Package dataset is a finished data set seen as a whole: a store with a manifest,
// shards and their indexes.
//
// Start with [Open]. [Dataset.Rows] and [Dataset.OpenShard] are what readers build
// on; [Verify] compares every byte with what the manifest and the indexes say;
// [Extract] turns a data set back into files; [Index] writes the manifest and the
// indexes of shards that another tool made, [AddSeek] the seek points of a data set's
// JPEGs; [Describe] is the one place that says what stands in an index row, for package
// pack and for Index alike.
//
// # What is promised
//
// Rows and fields that are handed out have been checked: an index against the
// size and checksum in the manifest, a field against the CRC-32C in its index row.
// Nothing here changes a shard. Sizes that a manifest or an index claims are held
// against the real files before memory is allocated for them.
package dataset

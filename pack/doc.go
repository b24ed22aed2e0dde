// Package pack turns a source of files into a finished data set: shards, an index
// beside each, and the manifest that makes them one.
//
// Call [Run]. It is three steps, each idempotent and each usable alone by a
// scheduler that wants to run the middle one on many machines:
//
//	Plan    scan the source, decide which files make a sample, give every sample
//	        its place; the plan is an object of the unfinished data set
//	Shard   read the samples of one planned shard, check them, write the shard and
//	        its index; leave a record that it is done
//	Commit  when all shards are done, write the manifest
//
// The plan is a function of the source and the [Config] alone, and a shard of the
// plan and the files: also where images are converted ([Convert]), each by itself. So the bytes are the same for any number of workers, machines
// and interruptions.
//
// # An unfinished data set
//
//	DST/.shardify/plan            what is to be done; see planfile.go
//	DST/.shardify/done/000007     shard 7 is finished: its facts, as JSON
//	DST/.shardify/lock-0-of-1     held by the process that is worker 0 of 1
//	DST/.shardify/lock-shard-7    held while shard 7 is written
//	DST/.shardify/lock-plan       held while the plan is made or dropped
//	DST/.shardify/lock-commit     held while the manifest is written
//	DST/train-000007.tar          a finished shard
//	DST/train-000007.parquet      its index
//	DST/train-000007.seek         its JPEGs' seek points, under Config.JPEGSeek
//	DST/.tmp-*                    what is being written
//
// A shard is written under a temporary name, made durable, renamed; then its index
// and its seek points; then its done record. The manifest comes after all of them, and after it
// .shardify goes away. So a crash at any byte costs the shards in flight and nothing
// else: the same call again finds the plan and the done records and goes on. Without
// a manifest no reader takes the folder for a data set.
//
// A record counts for the plan it was made from and no other: each plan has an
// identity, and whoever writes a shard makes sure, under the shard's lock, that the
// plan is still there.
//
// # Bounds
//
// Planning sorts outside memory, in half of [Env].Memory; packing holds
// [Env].Memory bytes of samples at once, half of it what conversions take. Neither grows with the number of files.
package pack

// Package reader streams a packed data set to a training loop: shuffled, verified,
// decoded, augmented and batched, in an order that depends on nothing but the data
// set, the configuration and the epoch.
//
// Start with [Open]; range over [Reader.Epochs], which goes from one epoch into the next, or
// over one epoch, [Reader.Epoch]; [Batch.Release] each batch. The zero
// [Config] works; [Reader.Config] shows what it became. [Batch.State] is what a
// checkpoint keeps, and Epochs goes on from it. [Sampling] chooses and weighs
// samples, [Buckets] makes batches of samples of like shape or length, [OpenMix] reads
// several data sets as one, [Reader.Read] gives any samples by their numbers, [OpenStream]
// reads shards that have no index, from disks, pipes and web servers. Config.Transform has
// the transforms of package imaging/transform, Config.Collate leaves images the sizes that
// they have, and [TensorSpec] makes tensors of other fields than the image: text, numbers,
// masks, boxes. [NewPlan] gives the order alone, without any data. [Reader.Stats] says
// which stage is the slow one.
//
// # Stages
//
// A pass over epochs is a pipeline, which does not run empty between them. Each stage is a
// file:
//
//	stage     file          goroutines    from → to
//	sampling  sampling.go   (pure)        index, epoch → which samples, how often
//	buckets   buckets.go    (pure)        index → which samples share batches, when
//	plan      plan.go       (pure)        shard sizes, Order, epoch → sample numbers
//	index     rows.go       (cache)       sample numbers → offsets, labels, checksums
//	schedule  schedule.go   1             batches of the plan → reads, slab, memory
//	fetch     fetch.go,     8 or 64       reads → bytes of fields; neighbours of
//	          ahead.go                    several batches together; through store/cache
//	                                      and store/retry, which Config.Cache and
//	                                      Config.Retry set
//	decode    decode.go     Workers       bytes → verified fields, and through
//	                                      transform.go pixels in the batch's slab,
//	                                      of several JPEGs at a time;
//	                                      values.go and pictures.go: all other tensors;
//	                                      sizes.go: images of sizes of their own
//	collate   collate.go    (a worker's)  slots → the tensors of a batch, which blend.go
//	                                      blends under MixUp and CutMix
//	deliver   pass.go       the caller's  finished batches, in the plan's order; read.go:
//	                                      those of Reader.Read
//
// Of a [Stream], these come instead of the stages from sampling to fetch:
//
//	order     streamorder.go   (pure)        names, epoch → shards of a rank
//	source    streamsource.go  1 a shard     stream → decompressed bytes
//	fill      streamfill.go    1             samples → sliding buffer → jobs, memory
//
// The range statement owns all of it: when the loop is left, by break, return, panic,
// error or the end of its context, every goroutine has ended.
//
// # What is promised
//
//   - Order. An epoch has every sample exactly once over all ranks, or as often as
//     Sampling says (Ends says what becomes of the last incomplete batch), in an
//     order fixed by data set, Config and epoch. All ranks get the same number of
//     batches. A global batch has the same samples for every World that divides
//     Lanes, as long as BatchSize × World is the same.
//   - Resuming. From the State behind any batch, the rest of the epoch comes as it
//     would have come, at once and without reading what came before, also with
//     another World and BatchSize of the same product. A State of other data, or of
//     another order, is an error that says what differs.
//   - Epochs. A pass over several has the batches that they have one by one, and holds
//     no more memory than a pass over one; what bytes of the next one are read ahead
//     while this one ends is as far as that reaches.
//   - Pixels. A sample's picture depends on (Seed, epoch, sample number) only, and where
//     it comes several times in an epoch, on which of these times it is: one worker
//     or sixteen, this rank or that, give the same bytes.
//   - Ownership. A batch is the caller's until Release; its slab is not touched
//     before. Releasing twice, or using a released batch, panics. A batch that is
//     dropped without Release ends its pass with an error where it would otherwise
//     wait for ever.
//   - Memory. A pass holds at most Config.Memory: batches, bytes in flight and read
//     ahead, what images are decoded into, index.
//     Only a sample that is larger than all of that gets more, alone.
//   - Bad data. Every field is compared with its CRC-32C before it is used, and read
//     a second time, from the shard opened anew, where it differs. What is still
//     wrong ends the pass, or is left out, or another sample stands in for it
//     ([OnBad]), up to a limit in each epoch (Config.MaxBad); it is always reported, by key
//     ([Batch.Bad], [Reader.BadSamples]). No policy changes the number of batches.
//     Errors come in the order of batches, and name shard, key, field and offset:
//     [*SampleError].
//   - Bad stores. What fails or stalls is tried again (Config.Retry); the same
//     samples come in the same order.
//
// # Reading
//
// Fields are read by their offsets in the index, neighbouring ones with one read. So
// any order costs the same on a local disk, uncompressed or as .tar.zst, whose frames
// are reached through their seek table. Of remote stores, and of .tar.zst shards whose
// frames hold several samples, what batches to come need is read ahead together with
// what lies beside it (Config.ReadAhead): under all modes but ShuffleGlobal a remote
// store is asked once for some 4 MiB, and each byte comes once, if there is memory for
// a window and a half; with less, what has no room comes one by one. Under
// ShuffleGlobal it is one request a sample, 64 at a time. A .tar.gz can only be
// read from its start. It is read forward, once for each lane that has a part of it;
// under ShuffleWindow or ShuffleGlobal, whose reads also go back, most reads start
// over from the beginning of the shard. So ShuffleAuto is ShuffleShards there; pack
// as .tar or .tar.zst for more.
package reader

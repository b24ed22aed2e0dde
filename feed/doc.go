// Package feed hands batches to trainers in other processes: of the same host in shared
// memory, without a copy from where they were decoded to the trainer's tensors, and of
// other hosts over TCP. docs/feed.md is the protocol, for clients in any language; the
// Python package shardread is one.
//
// A [Server] reads for any number of clients, each in a connection of its own
// ([Server.Serve], [Server.ServeConn]); `shardread serve` is one. A [Client] is the other
// side: [Client.Open] opens a data set as reader.Open does, and [Reader.Epoch] yields its
// batches.
//
// # What is promised
//
//   - The batches are those that package reader would have yielded in the client's process,
//     to the last byte, in the same order, with the same states.
//   - A batch is the client's until it releases it. Its memory is not touched before, also
//     when its pass, its reader or its server has ended.
//   - Memory is bounded in bytes, twice: what is sent and not released by each pass's
//     credit, and all that all passes of all clients hold by [Config.Memory].
//   - A client that dies, however, holds nothing any more a moment later: its passes have
//     ended, their memory is free. A server that dies ends its clients' calls with an error.
//   - What a client sends cannot harm the server or its other clients: every length is
//     checked before memory is taken for it. A client shares memory only with the server.
//
// Who may connect to the Unix socket may make the server read whatever its user may: the
// socket is its user's alone. Over TCP a token is asked for before anything else.
package feed

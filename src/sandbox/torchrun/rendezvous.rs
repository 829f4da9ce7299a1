//! How the nodes of a fake torchrun find each other: node 0 listens, the others dial, every node learns the ranks.
//!
//! Lines over TCP: `join NODE_RANK NPROC RUN_ID` answered by `go NODE_RANK OFFSET WORLD`, at the end `done`. A caller that sends nothing (a probe
//! of the port) is ignored. The death of a node is not noticed, as with torchrun's static rendezvous.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::TorchrunArgs;

/// How long torchrun waits at the end for the other nodes.
const EXIT_BARRIER_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeAssignment {
    /// `GROUP_RANK`.
    pub(super) group_rank: u32,
    /// The first worker's `RANK`.
    pub(super) first_rank: u32,
    /// `WORLD_SIZE`.
    pub(super) world_size: u32,
    /// `MASTER_PORT`.
    pub(super) master_port: u16,
}

/// What stays open while the workers run.
pub(super) enum RendezvousStore {
    /// This node keeps it; the others are connected.
    Hosted(JoinSet<()>),
    /// Another node keeps it.
    Joined(TcpStream),
}

struct JoinedNode {
    rank: Option<u32>,
    nproc: u32,
    stream: BufReader<TcpStream>,
}

fn join_timeout(args: &TorchrunArgs) -> Duration {
    let asked = args.rdzv_conf.get("join_timeout").or(args.rdzv_conf.get("timeout")).and_then(|t| t.parse().ok());
    Duration::from_secs(asked.unwrap_or(300))
}

/// Whether this node keeps the store. Under c10d the one that can, unless `is_host` says it.
async fn bind_store(args: &TorchrunArgs) -> Result<Option<TcpListener>, String> {
    let host = args.rdzv_conf.get("is_host").map(|v| v == "1" || v.eq_ignore_ascii_case("true"));
    let wanted = if args.rdzv_backend == "static" { Some(args.node_rank == 0) } else { host };
    if wanted == Some(false) {
        return Ok(None);
    }
    match TcpListener::bind(("127.0.0.1", args.master_port)).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(format!(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: {}, useIpv6: false, \
             code: -{}, name: EADDRINUSE, message: address already in use",
            args.master_port,
            error.raw_os_error().unwrap_or(98)
        )),
    }
}

/// Meets the other nodes.
pub(super) async fn join_rendezvous(args: &TorchrunArgs) -> Result<(NodeAssignment, RendezvousStore), String> {
    let within = join_timeout(args);
    match bind_store(args).await? {
        Some(listener) => {
            let mut joined = Vec::new();
            match tokio::time::timeout(within, accept_nodes(&listener, args, &mut joined)).await {
                Ok(()) => assign_ranks(args, listener, joined).await,
                Err(_) => Err(format!(
                    "torch.distributed.DistStoreError: Timed out after {} seconds waiting for clients. {}/{} clients joined.",
                    within.as_secs() + 1,
                    joined.len() + 1,
                    args.nnodes
                )),
            }
        }
        None => join_store(args, within).await,
    }
}

async fn accept_nodes(listener: &TcpListener, args: &TorchrunArgs, nodes: &mut Vec<JoinedNode>) {
    let mut callers = JoinSet::new();
    while nodes.len() + 1 < args.nnodes as usize {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let id = args.run_id.clone();
                callers.spawn(async move { read_join_request(stream, &id).await });
            },
            Some(caller) = callers.join_next() => nodes.extend(caller.ok().flatten()),
        }
    }
}

async fn read_join_request(stream: TcpStream, id: &str) -> Option<JoinedNode> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["join", rank, nproc, run] if *run == id => Some(JoinedNode { rank: rank.parse().ok(), nproc: nproc.parse().ok()?, stream }),
        _ => None,
    }
}

async fn assign_ranks(
    args: &TorchrunArgs,
    listener: TcpListener,
    mut nodes: Vec<JoinedNode>,
) -> Result<(NodeAssignment, RendezvousStore), String> {
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    nodes.sort_by_key(|node| node.rank);
    let world = args.nproc + nodes.iter().map(|g| g.nproc).sum::<u32>();
    let mut offset = args.nproc;
    let mut kept = JoinSet::new();
    for (rank, mut joined) in (1_u32..).zip(nodes) {
        let line = format!("go {rank} {offset} {world}\n");
        joined.stream.get_mut().write_all(line.as_bytes()).await.map_err(|e| format!("torch.distributed.DistNetworkError: {e}"))?;
        offset += joined.nproc;
        kept.spawn(async move {
            // `done`, or the end of the connection: either way this node is not waited for any longer.
            let mut line = String::new();
            if let Err(error) = joined.stream.read_line(&mut line).await {
                tracing::debug!(%error, "a node left");
            }
        });
    }
    // The port stays taken as long as this node lives; callers are accepted and get no answer.
    kept.spawn(async move {
        let mut callers = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            callers.truncate(64);
            callers.insert(0, stream);
        }
    });
    Ok((NodeAssignment { group_rank: 0, first_rank: 0, world_size: world, master_port: port }, RendezvousStore::Hosted(kept)))
}

async fn join_store(args: &TorchrunArgs, within: Duration) -> Result<(NodeAssignment, RendezvousStore), String> {
    let end = Instant::now() + within;
    let late = || {
        format!(
            "torch.distributed.DistNetworkError: The client socket has timed out after {}ms while trying to connect to ({}, {}).",
            within.as_millis(),
            args.master_addr,
            args.master_port
        )
    };
    loop {
        if Instant::now() >= end {
            return Err(late());
        }
        match tokio::time::timeout_at(end, try_join_store(args)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(_) => return Err(late()),
        }
    }
}

async fn try_join_store(args: &TorchrunArgs) -> io::Result<(NodeAssignment, RendezvousStore)> {
    let mut stream = BufReader::new(TcpStream::connect((args.master_addr.as_str(), args.master_port)).await?);
    let rank = if args.rdzv_backend == "static" { args.node_rank.to_string() } else { "-".to_owned() };
    stream.get_mut().write_all(format!("join {rank} {} {}\n", args.nproc, args.run_id).as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let words: Vec<u32> = line.strip_prefix("go ").unwrap_or_default().split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match words.as_slice() {
        [node, offset, world] => Ok((
            NodeAssignment { group_rank: *node, first_rank: *offset, world_size: *world, master_port: args.master_port },
            RendezvousStore::Joined(stream.into_inner()),
        )),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl RendezvousStore {
    /// Waits at the end as torchrun does: the node that keeps the store stays until the others are done.
    pub(super) async fn wait_exit_barrier(self) {
        match self {
            RendezvousStore::Joined(mut stream) => {
                if let Err(error) = stream.write_all(b"done\n").await {
                    tracing::debug!(%error, "the store is gone");
                }
            }
            RendezvousStore::Hosted(mut nodes) => {
                // The last one is the task that holds the port.
                let all = async { while nodes.len() > 1 && nodes.join_next().await.is_some() {} };
                if tokio::time::timeout(EXIT_BARRIER_TIMEOUT, all).await.is_err() {
                    tracing::debug!("not every node came to the exit barrier");
                }
            }
        }
    }
}

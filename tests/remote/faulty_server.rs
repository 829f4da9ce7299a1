//! Servers that misbehave: listeners that are no SSH servers, and proxies in front of a real one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::sshd::wait_until;

/// What a listener does with each connection.
#[derive(Clone)]
pub(crate) enum ServerFault {
    /// Accepts the connection and sends nothing.
    Silent,
    /// Sends this and keeps the connection open.
    Banner(Vec<u8>),
    /// Sends this and closes its side.
    BannerThenClose(Vec<u8>),
    /// Sends this repeatedly without end.
    EndlessBanner(Vec<u8>),
}

/// A listener with one thread per connection; all threads end on `drop`.
pub(crate) struct FaultyServer {
    pub(crate) port: u16,
    open: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyServer {
    fn new(serve: impl Fn(TcpStream, &Mutex<Vec<TcpStream>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (open, held) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (still, all, serve) = (open.clone(), held.clone(), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming().flatten() {
                if !still.load(Ordering::SeqCst) {
                    break;
                }
                all.lock().expect("not poisoned").push(stream.try_clone().expect("a descriptor"));
                let (serve, all) = (serve.clone(), all.clone());
                threads.push(std::thread::spawn(move || serve(stream, &all)));
            }
            for thread in threads {
                thread.join().expect("it ends");
            }
        });
        FaultyServer { port, open, connections: held, thread: Some(thread) }
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        for stream in self.connections.lock().expect("not poisoned").drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

impl ServerFault {
    pub(crate) fn description(&self) -> String {
        match self {
            ServerFault::Silent => "silent".to_owned(),
            ServerFault::Banner(what) => format!("says {}", what.escape_ascii()),
            ServerFault::BannerThenClose(what) => format!("says {} and closes", what.escape_ascii()),
            ServerFault::EndlessBanner(what) => format!("repeats {}", what.escape_ascii()),
        }
    }

    pub(crate) fn start_server(self) -> FaultyServer {
        FaultyServer::new(move |mut stream, _| match &self {
            ServerFault::Silent => drain(&mut stream),
            ServerFault::Banner(what) => {
                stream.write_all(what).ok();
                drain(&mut stream);
            }
            ServerFault::BannerThenClose(what) => {
                stream.write_all(what).ok();
                stream.shutdown(Shutdown::Write).ok();
                drain(&mut stream);
            }
            ServerFault::EndlessBanner(what) => while stream.write_all(what).is_ok() {},
        })
    }
}

/// Reads and discards until the other side closes.
fn drain(stream: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

/// A fault of a proxy in front of a real server, after that many bytes.
#[derive(Clone, Copy)]
pub(crate) enum ProxyFault {
    /// Closes both directions after this many bytes from the server.
    Close(usize),
    /// Forwards nothing more after this many bytes from the server.
    Stall(usize),
    /// Reads nothing more from the client after this many bytes.
    StopReading(usize),
}

impl ProxyFault {
    /// Starts a proxy in front of the real server at `port`.
    pub(crate) fn start_proxy(self, port: u16) -> FaultyServer {
        FaultyServer::new(move |client, held| {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            held.lock().expect("not poisoned").push(server.try_clone().expect("a descriptor"));
            let (from_server, from_client) = match self {
                ProxyFault::Close(n) | ProxyFault::Stall(n) => (n, usize::MAX),
                ProxyFault::StopReading(n) => (usize::MAX, n),
            };
            let close = matches!(self, ProxyFault::Close(_));
            let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            let (c, s) = (twin(&client), twin(&server));
            let up = std::thread::spawn(move || forward_bytes(c, s, from_client, false));
            forward_bytes(server, client, from_server, close);
            up.join().expect("it ends");
        })
    }
}

/// Forwards at most `room` bytes, then closes both sides, or stalls until the other side is gone.
fn forward_bytes(mut from: TcpStream, mut to: TcpStream, mut room: usize, close: bool) {
    let mut bytes = [0; 4096];
    while room > 0 {
        let most = bytes.len().min(room);
        match from.read(&mut bytes[..most]) {
            Ok(n) if n > 0 && to.write_all(&bytes[..n]).is_ok() => room -= n,
            _ => break,
        }
    }
    if close || room > 0 {
        to.shutdown(Shutdown::Both).ok();
        from.shutdown(Shutdown::Both).ok();
    }
}

/// Waits until this test has no tasks, and this process no sockets to any of these ports.
pub(crate) async fn assert_nothing_left(of: &str, ports: &[u16]) {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    wait_until(&format!("no task is left of {of}"), || tasks() == 0).await;
    wait_until(&format!("no socket is left of {of}"), || count_sockets(ports) == 0).await;
}

/// Counts sockets of this process to these ports on 127.0.0.1. Other tests of the process use other ports.
fn count_sockets(ports: &[u16]) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("proc");
    let ours: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .expect("proc")
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .collect();
    let leads = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = words[2].rsplit(':').next().and_then(|p| u16::from_str_radix(p, 16).ok());
        port.is_some_and(|p| ports.contains(&p)) && ours.iter().any(|inode| inode == words[9])
    };
    table.lines().skip(1).filter(leads).count()
}

//! Servers that misbehave: what is no SSH server at all, and what stands between a real one and us.
#![expect(clippy::expect_used, reason = "a fixture fails loudly")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::sshd::until;

/// What it does with everyone who comes.
#[derive(Clone)]
pub(crate) enum Odd {
    /// Takes the connection.
    Silent,
    /// Says this, and stays.
    Says(Vec<u8>),
    /// Says this, hears one thing, and closes.
    SaysAndCloses(Vec<u8>),
    /// Says this for ever.
    Repeats(Vec<u8>),
}

/// A listener with a thread for each connection; all of them end when it is dropped.
pub(crate) struct Door {
    pub(crate) port: u16,
    open: Arc<AtomicBool>,
    held: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
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
        Door { port, open, held, thread: Some(thread) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        for stream in self.held.lock().expect("not poisoned").drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

impl Odd {
    pub(crate) fn name(&self) -> String {
        match self {
            Odd::Silent => "silent".to_owned(),
            Odd::Says(what) => format!("says {}", what.escape_ascii()),
            Odd::SaysAndCloses(what) => format!("says {} and closes", what.escape_ascii()),
            Odd::Repeats(what) => format!("repeats {}", what.escape_ascii()),
        }
    }

    pub(crate) fn serve(self) -> Door {
        Door::new(move |mut stream, _| match &self {
            Odd::Silent => wait(&mut stream),
            Odd::Says(what) => {
                stream.write_all(what).ok();
                wait(&mut stream);
            }
            Odd::SaysAndCloses(what) => {
                stream.write_all(what).ok();
                stream.shutdown(Shutdown::Write).ok();
                wait(&mut stream);
            }
            Odd::Repeats(what) => while stream.write_all(what).is_ok() {},
        })
    }
}

/// Hears without listening until the other end closes.
fn wait(stream: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

/// What stands before a real server goes wrong so, after that many bytes.
#[derive(Clone, Copy)]
pub(crate) enum Cut {
    /// Both ways are closed after so much from the server.
    Closes(usize),
    /// Nothing is passed on any more after so much from the server.
    Stops(usize),
    /// Nothing is taken from the client any more after so much of it.
    Deaf(usize),
}

impl Cut {
    /// Stands before the real server at `port`.
    pub(crate) fn before(self, port: u16) -> Door {
        Door::new(move |client, held| {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            held.lock().expect("not poisoned").push(server.try_clone().expect("a descriptor"));
            let (from_server, from_client) = match self {
                Cut::Closes(n) | Cut::Stops(n) => (n, usize::MAX),
                Cut::Deaf(n) => (usize::MAX, n),
            };
            let close = matches!(self, Cut::Closes(_));
            let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            let (c, s) = (twin(&client), twin(&server));
            let up = std::thread::spawn(move || pass(c, s, from_client, false));
            pass(server, client, from_server, close);
            up.join().expect("it ends");
        })
    }
}

/// Passes at most `room` bytes on, then closes both ends or stands still until the other side is gone.
fn pass(mut from: TcpStream, mut to: TcpStream, mut room: usize, close: bool) {
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

/// Waits until this test has no task left, and this process no socket to any of these ports.
pub(crate) async fn nothing_left(of: &str, ports: &[u16]) {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until(&format!("no task is left of {of}"), || tasks() == 0).await;
    until(&format!("no socket is left of {of}"), || sockets(ports) == 0).await;
}

/// Sockets of this process that lead to these ports on 127.0.0.1. Other tests of this process have ports of their own.
fn sockets(ports: &[u16]) -> usize {
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

//! Ports for tests that run at the same time.

use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that connections of other tests take as their source (32768 and up): one of those could take it before it is used.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + u16::try_from((std::process::id().wrapping_mul(61) + step) % 18_000).expect("small");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

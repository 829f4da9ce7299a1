//! Opens a TCP connection: resolves the name and tries its addresses in parallel (RFC 8305), from the configured bind address.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::model::ADDRESS_NOT_FOUND_HINT;
use crate::remote::RemoteError;
use crate::remote::connection_options::BindOptions;
use crate::remote::hop::{AddressFamily, Hop};
use crate::text::error_chain::plain_io_error;

/// How long the kernel retries unacknowledged data.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum interval of TCP keepalives.
const MIN_KEEPALIVE: Duration = Duration::from_secs(1);
/// Delay before the next address is tried (the Connection Attempt Delay of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Delay between two `ConnectionAttempts`, as in OpenSSH.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of failed addresses in a message.
const MAX_SHOWN_ADDRESSES: usize = 4;

/// Opens a TCP connection to a hop, with `ConnectionAttempts` until the deadline.
pub(super) async fn connect_tcp(hop: &Hop, deadline: Instant) -> Result<TcpStream, RemoteError> {
    let mut left = hop.connection_attempts.max(1);
    loop {
        left -= 1;
        let error = match connect_once(hop, deadline).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if left == 0 || !error.is_retryable() || Instant::now() + RETRY_PAUSE >= deadline {
            return Err(error);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn connect_once(hop: &Hop, deadline: Instant) -> Result<TcpStream, RemoteError> {
    let addresses = resolve_addresses(&hop.host, hop.port, hop.address_family, deadline)
        .await
        .map_err(|why| RemoteError::lost(hop.prefix_message(&format!("its address was not found: {why}")), ADDRESS_NOT_FOUND_HINT, true))?;
    let sources = bind_addresses(&hop.bind, hop.address_family, deadline).await?;
    match race_addresses(interleave_families(addresses), &sources, deadline).await {
        Ok(stream) => {
            set_socket_options(&stream, hop);
            Ok(stream)
        }
        Err(failed) => Err(RemoteError::lost(
            hop.prefix_message(&format!("could not connect to port {}: {}", hop.port, describe_failures(&failed, hop.connect_timeout))),
            "check that the host is up, its address is right and sshd listens there",
            true,
        )),
    }
}

/// Why every address failed; no reason means no answer.
type FailedAddresses = Vec<(SocketAddr, Option<String>)>;

/// The reasons, with addresses if there are several: many hosts share one reason.
fn describe_failures(failed: &FailedAddresses, within: Duration) -> String {
    let why = |why: &Option<String>| why.clone().unwrap_or_else(|| format!("no answer within {within:?}"));
    if let [(_, only)] = failed.as_slice() {
        return why(only);
    }
    let mut all: Vec<String> =
        failed.iter().take(MAX_SHOWN_ADDRESSES).map(|(address, reason)| format!("{address}: {}", why(reason))).collect();
    if failed.len() > MAX_SHOWN_ADDRESSES {
        all.push(format!("and {} more", failed.len() - MAX_SHOWN_ADDRESSES));
    }
    all.join("; ")
}

/// Tries the addresses, each with a delay after the previous one or as soon as that has failed; the first connection wins and the
/// others are closed.
async fn race_addresses(addresses: Vec<SocketAddr>, sources: &[IpAddr], deadline: Instant) -> Result<TcpStream, FailedAddresses> {
    let mut waiting: VecDeque<SocketAddr> = addresses.into();
    let mut trying = FuturesUnordered::new();
    let mut failed: FailedAddresses = Vec::new();
    let mut open: Vec<SocketAddr> = Vec::new();
    loop {
        if let Some(address) = waiting.pop_front() {
            open.push(address);
            trying.push(async move { (address, connect_from(address, sources).await) });
        }
        let next = if waiting.is_empty() { deadline } else { deadline.min(Instant::now() + ATTEMPT_DELAY) };
        match tokio::time::timeout_at(next, trying.next()).await {
            Ok(Some((_, Ok(stream)))) => return Ok(stream),
            Ok(Some((address, Err(error)))) => {
                open.retain(|a| *a != address);
                failed.push((address, Some(plain_io_error(&error))));
            }
            Ok(None) => return Err(failed),
            Err(_) if Instant::now() >= deadline => {
                failed.extend(open.into_iter().chain(waiting).map(|a| (a, None)));
                return Err(failed);
            }
            Err(_) => {}
        }
    }
}

/// Connects from the first source address of the same family; without sources, from any.
async fn connect_from(address: SocketAddr, sources: &[IpAddr]) -> io::Result<TcpStream> {
    if sources.is_empty() {
        return TcpStream::connect(address).await;
    }
    let source = sources.iter().find(|s| s.is_ipv4() == address.is_ipv4());
    let source = source.ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "no bind address has the same family"))?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket
        .bind(SocketAddr::new(*source, 0))
        .map_err(|e| io::Error::new(e.kind(), format!("could not bind to {source}: {}", plain_io_error(&e))))?;
    socket.connect(address).await
}

/// The addresses of `BindAddress` or, without it, of `BindInterface`.
async fn bind_addresses(bind: &BindOptions, family: AddressFamily, deadline: Instant) -> Result<Vec<IpAddr>, RemoteError> {
    let wrong = |what: String| RemoteError::invalid_config(what, "correct or remove BindAddress and BindInterface");
    if let Some(address) = &bind.address {
        let found = resolve_addresses(address, 0, family, deadline).await;
        return found.map(|all| all.iter().map(SocketAddr::ip).collect()).map_err(|why| wrong(format!("BindAddress {address}: {why}")));
    }
    let Some(interface) = &bind.interface else { return Ok(Vec::new()) };
    let all = nix::ifaddrs::getifaddrs().map_err(|e| wrong(format!("BindInterface {interface}: {e}")))?;
    let ip = |a: nix::sys::socket::SockaddrStorage| {
        let (v4, v6) = (a.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())), a.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())));
        v4.or(v6)
    };
    let mut found: Vec<IpAddr> = all.filter(|a| a.interface_name == *interface).filter_map(|a| ip(a.address?)).collect();
    found.retain(|a| family.allows(a));
    // A link-local address is unusable without its zone.
    found.sort_by_key(|a| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local()));
    if found.is_empty() { Err(wrong(format!("BindInterface {interface}: no such interface, or it has no address"))) } else { Ok(found) }
}

/// Resolves a name; the error is a fragment.
async fn resolve_addresses(host: &str, port: u16, family: AddressFamily, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
    let found = match tokio::time::timeout_at(deadline, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found,
        Ok(Err(e)) => return Err(plain_io_error(&e).replace("failed to lookup address information: ", "")),
        Err(_) => return Err("no answer".to_owned()),
    };
    let found: Vec<SocketAddr> = found.filter(|a| family.allows(&a.ip())).collect();
    if found.is_empty() { Err("it has no address of the requested family (AddressFamily)".to_owned()) } else { Ok(found) }
}

/// Alternates address families, starting with the first address's; otherwise keeps the order.
fn interleave_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = addresses.first().is_none_or(SocketAddr::is_ipv4);
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) = addresses.into_iter().partition(|a| a.is_ipv4() == first);
    let mut all = Vec::new();
    while !one.is_empty() || !other.is_empty() {
        all.extend(one.pop_front());
        all.extend(other.pop_front());
    }
    all
}

/// Sets keepalive and latency options. A refused option does not fail the connection.
fn set_socket_options(stream: &TcpStream, hop: &Hop) {
    let mut refused = Vec::new();
    refused.extend(stream.set_nodelay(true).err());
    if hop.tcp_keepalive {
        let socket = socket2::SockRef::from(stream);
        let set = match hop.keepalive_interval {
            Some(span) => socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(span.max(MIN_KEEPALIVE))),
            None => socket.set_keepalive(true),
        };
        refused.extend(set.err());
    }
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(TCP_USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        refused.extend(rustix::net::sockopt::set_tcp_user_timeout(stream, millis).err().map(io::Error::from));
    }
    for error in refused {
        tracing::debug!(host = %hop.name, %error, "a socket option was refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket_addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn address_families_are_interleaved() {
        let all = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"].map(socket_addr).to_vec();
        assert_eq!(interleave_families(all), ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"].map(socket_addr));
        assert_eq!(interleave_families(vec![socket_addr("1.1.1.1:1")]), [socket_addr("1.1.1.1:1")]);
    }

    /// Loopback addresses where a connection hangs: the accept queue is full.
    async fn full_backlog_listener() -> (Vec<TcpStream>, tokio::net::TcpListener, SocketAddr) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(socket_addr("127.0.0.1:0")).expect("bound");
        let listener = socket.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound");
        let mut held = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
            held.push(stream);
        }
        (held, listener, address)
    }

    #[tokio::test]
    async fn silent_address_does_not_delay_next() {
        let (_held, _door, silent) = full_backlog_listener().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let good = listener.local_addr().expect("bound");
        let started = Instant::now();
        let stream = race_addresses(vec![silent, good], &[], started + Duration::from_secs(10)).await.expect("connected");
        assert_eq!(stream.peer_addr().expect("connected"), good);
        assert!((ATTEMPT_DELAY..Duration::from_secs(9)).contains(&started.elapsed()), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn failed_addresses_report_their_reasons() {
        let (_held, _door, silent) = full_backlog_listener().await;
        let closed = socket_addr("127.0.0.1:1");
        let failed =
            race_addresses(vec![closed, silent], &[], Instant::now() + Duration::from_millis(600)).await.expect_err("nobody answers");
        let text = describe_failures(&failed, Duration::from_millis(600));
        assert_eq!(text, format!("{closed}: connection refused; {silent}: no answer within 600ms"));
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn bind_address_and_interface_are_used() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let good = listener.local_addr().expect("bound");
        let soon = || Instant::now() + Duration::from_secs(5);
        let bind = BindOptions { address: Some("127.0.0.9".to_owned()), interface: None };
        let from = bind_addresses(&bind, AddressFamily::Any, soon()).await.expect("an address");
        let stream = race_addresses(vec![good], &from, soon()).await.expect("connected");
        assert_eq!(stream.local_addr().expect("connected").ip().to_string(), "127.0.0.9");
        let bind = BindOptions { address: None, interface: Some("lo".to_owned()) };
        assert!(bind_addresses(&bind, AddressFamily::V4, soon()).await.expect("addresses").contains(&IpAddr::from([127, 0, 0, 1])));
        let bind = BindOptions { address: None, interface: Some("nosuch0".to_owned()) };
        assert!(bind_addresses(&bind, AddressFamily::Any, soon()).await.is_err_and(|e| e.to_string().contains("nosuch0")));
        let failed = race_addresses(vec![good], &[IpAddr::from([203, 0, 113, 7])], soon()).await.expect_err("not ours");
        assert!(describe_failures(&failed, ATTEMPT_DELAY).contains("could not bind to 203.0.113.7"), "{failed:?}");
    }
}

//! The real [`super::Connect`]: one SSH connection a host, through its jump hosts, without storming anyone.
//!
//! Uses `resolve` for the way, `trust` for host keys, `link` for connections. Knows nothing of what is run over them.

mod auth;
mod client;
mod collect;
mod follow;
mod keys;
mod link;
mod session;
mod transport;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::keys::Keyring;
use self::link::{Failure, Link, Setup};
use self::session::SshHost;
use super::hop::Hop;
use super::resolve::Resolver;
use super::settings::Settings;
use super::trust::Files;
use super::{Connect, Remote, RemoteError};
use crate::inventory::Host;

/// Handshakes at once with one sshd: its MaxStartups drops the tenth.
const PER_DOOR: usize = 8;
/// Handshakes at once in all.
const IN_ALL: usize = 64;
/// Waits before another try with an sshd that was busy; each is stretched by up to half.
const BACK_OFF: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(600), Duration::from_millis(1800)];
/// Questions to the person within one connect: keys and a password.
const QUESTIONS: usize = 6;

/// The hosts of an inventory and the ways to them.
pub struct SshFleet {
    hosts: Vec<Host>,
    resolver: Resolver,
    files: Arc<Files>,
    keyring: Keyring,
    all: Semaphore,
    doors: Mutex<HashMap<String, Arc<Semaphore>>>,
    jumps: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Jump>>>>,
}

/// A jump host's connection, shared by all that go through it.
#[derive(Default)]
struct Jump {
    link: Weak<Link>,
    failed: Option<(Instant, RemoteError)>,
}

impl SshFleet {
    /// Makes a fleet; nothing is connected yet.
    pub fn new(hosts: Vec<Host>, settings: Settings) -> Self {
        SshFleet {
            hosts,
            resolver: Resolver::new(settings.clone()),
            files: Arc::default(),
            all: Semaphore::new(settings.parallel.clamp(1, IN_ALL)),
            keyring: Keyring::new(settings),
            doors: Mutex::default(),
            jumps: Mutex::default(),
        }
    }

    async fn reach(&self, host: usize) -> Result<Arc<dyn Remote>, RemoteError> {
        let missing = || RemoteError::Settings { what: format!("the inventory has no host number {host}"), hint: String::new() };
        let way = self.resolver.way(self.hosts.get(host).ok_or_else(missing)?).await?;
        let Some((last, jumps)) = way.split_last() else { return Err(missing()) };
        let mut below = None;
        let mut route = String::new();
        for hop in jumps {
            route = format!("{route}{}@{}:{}/", hop.user, hop.host, hop.port);
            below = Some(self.jump(hop, &route, below).await?);
        }
        let link = self.connect_hop(last, &route, below).await?;
        Ok(Arc::new(SshHost::new(link)))
    }

    /// The shared connection to a jump host. Those who waited for an attempt that failed get its error instead of trying again.
    async fn jump(&self, hop: &Hop, route: &str, below: Option<Arc<Link>>) -> Result<Arc<Link>, RemoteError> {
        let came = Instant::now();
        let slot = self.jumps.lock().unwrap_or_else(PoisonError::into_inner).entry(route.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(link) = slot.link.upgrade().filter(|link| !link.is_dead()) {
            return Ok(link);
        }
        if let Some((when, error)) = slot.failed.as_ref().filter(|(when, error)| *when >= came || !error.may_retry()) {
            tracing::debug!(jump = %hop.name, since = ?when.elapsed(), "not tried again");
            return Err(error.clone());
        }
        match self.connect_hop(hop, route, below).await {
            Ok(link) => {
                slot.link = Arc::downgrade(&link);
                slot.failed = None;
                Ok(link)
            }
            Err(error) => {
                slot.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect_hop(&self, hop: &Hop, route: &str, below: Option<Arc<Link>>) -> Result<Arc<Link>, RemoteError> {
        let door = format!("{route}{}:{}", hop.host, hop.port);
        let door = self
            .doors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(door)
            .or_insert_with(|| Arc::new(Semaphore::new(PER_DOOR)))
            .clone();
        let mut waits = BACK_OFF.iter();
        let mut questions = 0;
        loop {
            let failure = match self.handshake(hop, &door, below.clone()).await {
                Ok(link) => return Ok(link),
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::Busy(error) => match waits.next() {
                    Some(wait) => tokio::time::sleep(stretched(*wait)).await,
                    None => return Err(error),
                },
                Failure::Locked(_) | Failure::WantsPassword if questions == QUESTIONS => {
                    let what = format!("{} wants one secret after another", hop.name);
                    return Err(RemoteError::Refused { what, hint: String::new() });
                }
                Failure::Locked(path) => {
                    questions += 1;
                    self.keyring.open(&path).await?;
                }
                Failure::WantsPassword => {
                    questions += 1;
                    self.keyring.ask_password(hop).await;
                }
            }
        }
    }

    async fn handshake(&self, hop: &Hop, door: &Semaphore, below: Option<Arc<Link>>) -> Result<Arc<Link>, Failure> {
        let closed = |_| Failure::Final(RemoteError::Settings { what: "no more connections are made".to_owned(), hint: String::new() });
        let _door = door.acquire().await.map_err(closed)?;
        let _all = self.all.acquire().await.map_err(closed)?;
        let (files, name, policy) = (self.files.clone(), hop.name.clone(), hop.policy.clone());
        let reading = tokio::task::spawn_blocking(move || files.trust(&name, &policy)).await;
        let trust = reading.unwrap_or_else(|e| Err(RemoteError::Settings { what: format!("known_hosts: {e}"), hint: String::new() }));
        let trust = trust.map_err(Failure::Final)?;
        Link::connect(Setup { hop, trust, keyring: &self.keyring, below }).await
    }
}

/// A wait stretched by up to half, so that many do not come back at once.
fn stretched(wait: Duration) -> Duration {
    let [first, ..] = link::salt();
    wait + wait.mul_f64(f64::from(first) / 512.0)
}

impl Connect for SshFleet {
    fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.reach(host).boxed()
    }
}

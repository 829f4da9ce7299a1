//! The real [`super::Connect`]: one SSH connection a host, through its jump hosts, without storming anyone.
//!
//! Uses `resolve` for the way, `trust` for host keys, `link` for connections. Knows nothing of what is run over them.

mod agent;
mod answers;
mod auth;
mod client;
mod collect;
mod dial;
mod follow;
mod identities;
mod keys;
mod link;
mod offer;
mod pause;
mod proxy;
mod session;
mod sessions;
mod sink;
mod talk;
mod transport;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::keys::Keyring;
use self::link::{Failure, Link, Setup};
use self::session::SshHost;
use super::explain::{HopSettings, explain};
use super::hop::Hop;
use super::resolve::Resolver;
use super::settings::Settings;
use super::trust::{Files, Trust};
use super::{Connect, Remote, RemoteError};
use crate::inventory::Host;

/// Handshakes at once with one sshd: its MaxStartups drops the tenth.
const PER_DOOR: usize = 8;
/// Handshakes at once in all.
const IN_ALL: usize = 64;
/// Waits before another try with an sshd that was busy; each is stretched by up to half.
const BACK_OFF: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(600), Duration::from_millis(1800)];
/// For how long a host is tried again after an error that no retry mends, where `ssh.give_up` is not given.
const GIVE_UP: Duration = Duration::from_secs(600);
/// How long a jump host's refusal counts for all hosts behind it; after that one of them tries again: somebody may have mended it.
const MENDING: Duration = Duration::from_secs(30);
/// How often a host is connected again that was gone when the person had answered.
const QUESTIONS: usize = 2;

/// The hosts of an inventory and the ways to them.
pub struct SshFleet(Arc<Fleet>);

struct Fleet {
    hosts: Vec<Host>,
    resolver: Resolver,
    files: Arc<Files>,
    keyring: Keyring,
    all: Arc<Semaphore>,
    doors: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// For another try with an sshd that was busy: many addresses may lead to one sshd (a gateway, a bastion's own containers), whose doors
    /// know nothing of each other.
    again: Arc<Semaphore>,
    jumps: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Jump>>>>,
    /// What was told once.
    told: Mutex<HashSet<String>>,
}

/// A jump host's connection, shared by all that go through it.
#[derive(Default)]
struct Jump {
    link: Weak<Link>,
    failed: Option<(Instant, RemoteError)>,
}

/// What a handshake waits for.
struct Turns<'a> {
    door: &'a Semaphore,
    /// Whether it is another try.
    again: bool,
}

impl SshFleet {
    /// Makes a fleet; nothing is connected yet.
    pub fn new(hosts: Vec<Host>, settings: Settings) -> Self {
        SshFleet(Arc::new(Fleet {
            hosts,
            resolver: Resolver::new(settings.clone()),
            files: Arc::default(),
            all: Arc::new(Semaphore::new(settings.parallel.clamp(1, IN_ALL))),
            keyring: Keyring::new(settings),
            doors: Mutex::default(),
            again: Arc::new(Semaphore::new(PER_DOOR)),
            jumps: Mutex::default(),
            told: Mutex::default(),
        }))
    }

    /// How each host is reached, first hop first, and where every setting came from; no host is asked.
    pub async fn explain(&self) -> Vec<Result<Vec<HopSettings>, RemoteError>> {
        let fleet = &self.0;
        let way = |host| async move { Ok(fleet.resolver.steps(host).await?.iter().map(|step| explain(step, &host.ssh)).collect()) };
        futures_util::future::join_all(fleet.hosts.iter().map(way)).await
    }
}

impl Fleet {
    async fn reach(self: Arc<Self>, host: usize) -> Result<Arc<dyn Remote>, RemoteError> {
        let first = self.line(host).await?;
        let further = Arc::new(move || {
            let fleet = self.clone();
            async move { fleet.line(host).await }.boxed()
        });
        Ok(Arc::new(SshHost::new(first, further)))
    }

    /// One connection to a host.
    async fn line(&self, host: usize) -> Result<Arc<Link>, RemoteError> {
        let missing = || RemoteError::Settings { what: format!("the inventory has no host number {host}"), hint: String::new() };
        let way = self.resolver.way(self.hosts.get(host).ok_or_else(missing)?).await?;
        let Some((last, jumps)) = way.split_last() else { return Err(missing()) };
        let mut below = None;
        let mut route = String::new();
        for hop in jumps {
            route = format!("{route}{}@{}:{}/", hop.user, hop.host, hop.port);
            below = Some(self.jump(hop, &route, below).await?);
        }
        self.connect_hop(last, &route, below).await
    }

    /// The shared connection to a jump host. Those who waited for an attempt that failed get its error instead of trying again.
    async fn jump(&self, hop: &Hop, route: &str, below: Option<Arc<Link>>) -> Result<Arc<Link>, RemoteError> {
        let came = Instant::now();
        let slot = self.jumps.lock().unwrap_or_else(PoisonError::into_inner).entry(route.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(link) = slot.link.upgrade().filter(|link| !link.is_dead()) {
            return Ok(link);
        }
        let lasting = |when: &Instant, error: &RemoteError| !error.may_retry() && when.elapsed() < MENDING;
        if let Some((when, error)) = slot.failed.as_ref().filter(|(when, error)| *when >= came || lasting(when, error)) {
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
        self.tell_left_out(hop);
        let mut waits = BACK_OFF.iter();
        let mut spent = Duration::ZERO;
        let mut questions = 0;
        loop {
            let turns = Turns { door: &door, again: waits.len() < BACK_OFF.len() };
            let failure = match self.handshake(hop, turns, below.clone(), &mut spent).await {
                Ok(link) => return Ok(link),
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::Busy(error) => match waits.next().filter(|_| spent < hop.connect_timeout) {
                    Some(wait) => tokio::time::sleep(stretched(*wait)).await,
                    None => return Err(error),
                },
                Failure::Asked(error) if questions == QUESTIONS => return Err(error),
                Failure::Asked(_) => questions += 1,
            }
        }
    }

    /// One try, when it is its turn. The time it takes is added to `spent`.
    async fn handshake(&self, hop: &Hop, turns: Turns<'_>, below: Option<Arc<Link>>, spent: &mut Duration) -> Result<Arc<Link>, Failure> {
        let closed = |_| Failure::Final(RemoteError::Settings { what: "no more connections are made".to_owned(), hint: String::new() });
        let mut places = Vec::new();
        if turns.again {
            places.push(self.again.clone().acquire_owned().await.map_err(closed)?);
        }
        // Its sshd counts a login until it is over, whoever is waited for: this place is kept.
        let _door = turns.door.acquire().await.map_err(closed)?;
        places.push(self.all.clone().acquire_owned().await.map_err(closed)?);
        let began = Instant::now();
        let trust = self.trust(hop).await.map_err(Failure::Final)?;
        let made = Link::connect(Setup { hop, trust, keyring: &self.keyring, below, places }).await;
        *spent += began.elapsed();
        made
    }

    /// Tells once which algorithms of ssh_config cannot be offered.
    fn tell_left_out(&self, hop: &Hop) {
        for text in hop.algorithms.left_out() {
            if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
                tracing::info!("{text}");
            }
        }
    }

    /// What is known of a hop's key.
    async fn trust(&self, hop: &Hop) -> Result<Trust, RemoteError> {
        let (files, name, head, policy) = (self.files.clone(), hop.name.clone(), hop.says(""), hop.policy.clone());
        let reading = tokio::task::spawn_blocking(move || files.trust(&name, &head, &policy)).await;
        let mut trust = reading.map_err(|e| RemoteError::Settings { what: format!("known_hosts: {e}"), hint: String::new() })??;
        if let Some(command) = &hop.policy.command {
            trust.hear(&command.ask(None).await?);
        }
        Ok(trust)
    }
}

/// A wait stretched by up to half, so that many do not come back at once.
fn stretched(wait: Duration) -> Duration {
    let [first, ..] = link::salt();
    wait + wait.mul_f64(f64::from(first) / 512.0)
}

impl Connect for SshFleet {
    fn give_up(&self, host: usize) -> Duration {
        self.0.hosts.get(host).and_then(|host| host.ssh.give_up).unwrap_or(GIVE_UP)
    }

    fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.0.clone().reach(host).boxed()
    }
}

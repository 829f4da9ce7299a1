#![expect(clippy::disallowed_methods, reason = "the conductor owns tasks")]
//! Takes the name's lock on every host, shows that its holder lives, gives it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::emit::now;
use crate::engine::link::Link;
use crate::plan::action::lock;
use crate::plan::lock_record::Lock;
use crate::plan::site::Site;
use crate::remote::RemoteError;

/// How often the holder shows that he lives.
const BEAT: Duration = Duration::from_secs(5);

/// Who locks.
#[derive(Debug, Clone)]
pub struct Identity {
    /// A random word.
    pub token: String,
    /// `user@laptop`.
    pub owner: String,
    /// Which laptop.
    pub laptop: String,
    /// Our pid.
    pub pid: u32,
    /// Whether a process of this laptop lives.
    pub alive: fn(u32) -> bool,
}

/// Why a name could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another operator holds it.
    #[error("{owner} holds the lock on {host} (since {age} s)")]
    Held {
        /// Where.
        host: String,
        /// Who.
        owner: String,
        /// The age of its last sign of life.
        age: i64,
    },
    /// A host did not answer.
    #[error("{host}: {error}")]
    Remote {
        /// Which.
        host: String,
        /// Why.
        error: RemoteError,
    },
    /// The lock cannot be made.
    #[error("{host}: could not take the lock: {says}")]
    Impossible {
        /// Where.
        host: String,
        /// What the host said.
        says: String,
    },
}

/// A held lock. It must be released; dropped, it becomes stale by itself.
pub struct Held {
    /// The run that was current on each host when it was locked; empty: none.
    pub current: Vec<(usize, String)>,
    sites: Vec<(usize, Site)>,
    beating: CancellationToken,
    beat: tokio::task::JoinHandle<()>,
}

impl Engine {
    /// Locks the name on all of the given hosts: the first alone, since every operator begins there, then the others at once. `force`: a
    /// living holder is put aside.
    ///
    /// # Errors
    /// Who holds it, or which host did not answer; what was taken is given back.
    pub async fn lock(&self, sites: Vec<(usize, Site)>, who: &Identity, wait: Duration, force: bool) -> Result<Held, LockError> {
        self.lock_where(sites, who, wait, force, |_| false).await.map(|(held, _)| held)
    }

    /// Locks the name on those of the given hosts that can be locked, and tells which cannot: one that is lost or full keeps nobody from
    /// clearing away the others.
    ///
    /// # Errors
    /// Who holds it; what was taken is given back.
    pub async fn lock_what_can_be(
        &self,
        sites: Vec<(usize, Site)>,
        who: &Identity,
        wait: Duration,
        force: bool,
    ) -> Result<(Held, Vec<(usize, LockError)>), LockError> {
        self.lock_where(sites, who, wait, force, |error| !matches!(error, LockError::Held { .. })).await
    }

    async fn lock_where(
        &self,
        sites: Vec<(usize, Site)>,
        who: &Identity,
        wait: Duration,
        force: bool,
        bearable: impl Fn(&LockError) -> bool,
    ) -> Result<(Held, Vec<(usize, LockError)>), LockError> {
        let until = tokio::time::Instant::now() + wait;
        let (mut taken, mut current, mut without) = (Vec::new(), Vec::new(), Vec::new());
        let mut trouble = None;
        let mut sites = sites.into_iter().peekable();
        while sites.peek().is_some() && trouble.is_none() {
            // Until there is a first one they are asked one after the other.
            let group = if taken.is_empty() { 1 } else { usize::MAX };
            let mut tasks = JoinSet::new();
            for (index, site) in sites.by_ref().take(group) {
                let Some(link) = self.links.get(index).cloned() else { continue };
                let who = who.clone();
                tasks.spawn(async move { ((index, site.clone()), take(&link, &site, &who, until, force).await) });
            }
            while let Some(done) = tasks.join_next().await {
                match done {
                    Ok((site, Ok(run))) => {
                        current.push((site.0, run));
                        taken.push(site);
                    }
                    Ok((site, Err(error))) if bearable(&error) => without.push((site.0, error)),
                    Ok((_, Err(error))) => trouble = Some(error),
                    Err(_) => {}
                }
            }
        }
        if let Some(error) = trouble {
            self.give_back(&taken).await;
            return Err(error);
        }
        let beating = CancellationToken::new();
        let beat = tokio::spawn(beat(self.clone(), taken.clone(), beating.clone()));
        Ok((Held { current, sites: taken, beating, beat }, without))
    }

    /// Gives a lock back; a host that does not answer loses it by age.
    pub async fn unlock(&self, held: Held) {
        held.beating.cancel();
        if held.beat.await.is_err() {
            tracing::debug!("the lock's heartbeat ended early");
        }
        self.give_back(&held.sites).await;
    }

    async fn give_back(&self, sites: &[(usize, Site)]) {
        let commands = sites.iter().map(|(index, site)| (*index, lock::release(site))).collect();
        self.fan_out(commands, |index, answer| {
            if let Err(error) = answer {
                tracing::warn!(host = index, %error, "the lock was not given back; it ends by age");
            }
        })
        .await;
    }
}

async fn take(link: &Arc<Link>, site: &Site, who: &Identity, until: tokio::time::Instant, force: bool) -> Result<String, LockError> {
    let host = || site.host.clone();
    let text = Lock::text(&who.token, now() / 1000, who.pid, &who.laptop, &who.owner);
    loop {
        let output = link.exec(&lock::take(site, &text)).await.map_err(|error| LockError::Remote { host: host(), error })?;
        if output.ok() {
            return Ok(output.text().trim().to_owned());
        }
        if output.code != lock::HELD {
            return Err(LockError::Impossible { host: host(), says: output.complaint() });
        }
        let Some(found) = seen(link, site).await? else { continue };
        if force || lock::is_stale(&found, &who.laptop, who.alive) {
            link.emitter().notice(Some(link.host()), format!("the lock of {} is taken over", found.owner), true);
            link.exec(&lock::put_aside(site, &found)).await.map_err(|error| LockError::Remote { host: host(), error })?;
            continue;
        }
        if tokio::time::Instant::now() >= until {
            return Err(LockError::Held { host: host(), owner: found.owner, age: found.age });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The lock as it stands, with its age on the host's own clock.
async fn seen(link: &Arc<Link>, site: &Site) -> Result<Option<Lock>, LockError> {
    let output = link.exec(&lock::look(site)).await.map_err(|error| LockError::Remote { host: site.host.clone(), error })?;
    Ok(crate::plan::facts::HostFacts::read(&output.text()).lock)
}

/// Shows on every host that the holder lives. Needs none of the `forks`, which steps keep for as long as they run, and a host that hangs delays
/// no other.
async fn beat(engine: Engine, sites: Vec<(usize, Site)>, end: CancellationToken) {
    let mut hosts = JoinSet::new();
    for (index, site) in sites {
        let Some(link) = engine.links.get(index).cloned() else { continue };
        let end = end.clone();
        hosts.spawn(async move {
            let command = lock::renew(&site);
            while end.run_until_cancelled(tokio::time::sleep(BEAT)).await.is_some() {
                match tokio::time::timeout(command.timeout, link.exec(&command)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(host = index, %error, "the lock's heartbeat did not arrive"),
                    Err(_) => tracing::debug!(host = index, "the lock's heartbeat did not arrive in time"),
                }
            }
        });
    }
    while hosts.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use tokio::sync::mpsc;

    use super::*;
    use crate::engine::emit::Emitter;
    use crate::remote::{Connect, Piece, Reached, Remote, Stream, Talk, Terminal};
    use crate::shell::{Command, Output};

    /// A host that says yes to all; one that is deaf never answers a heartbeat.
    #[derive(Clone, Default)]
    struct Host {
        deaf: bool,
        beats: Arc<AtomicUsize>,
    }

    impl Remote for Host {
        fn exec<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>> {
            Box::pin(async move {
                if command.title == "renew the lock" {
                    self.beats.fetch_add(1, Ordering::Relaxed);
                    if self.deaf {
                        std::future::pending::<()>().await;
                    }
                }
                Ok(Output { code: 0, stdout: Vec::new(), stderr: Vec::new(), dropped: 0, elapsed: Duration::ZERO })
            })
        }

        fn relay<'a>(&'a self, _: &'a Command, _: mpsc::Sender<Piece>) -> BoxFuture<'a, Result<i32, RemoteError>> {
            Box::pin(std::future::pending())
        }

        fn stream<'a>(&'a self, _: &'a Command) -> BoxFuture<'a, Result<Stream, RemoteError>> {
            Box::pin(std::future::pending())
        }

        fn talk<'a>(&'a self, _: &'a Command, _: Option<Terminal>) -> BoxFuture<'a, Result<Talk, RemoteError>> {
            Box::pin(std::future::pending())
        }

        fn reach<'a>(&'a self, _: &'a str, _: u16, _: Duration) -> BoxFuture<'a, Result<Reached, RemoteError>> {
            Box::pin(std::future::pending())
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    struct Hosts(Vec<Host>);

    impl Connect for Hosts {
        fn give_up(&self, _: usize) -> Duration {
            Duration::MAX
        }

        fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
            let host: Arc<dyn Remote> = Arc::new(self.0[host].clone());
            Box::pin(async move { Ok(host) })
        }
    }

    #[tokio::test]
    async fn neither_long_steps_nor_a_host_that_hangs_keep_the_others_from_hearing_that_the_holder_lives() {
        let hosts = vec![Host { deaf: true, ..Host::default() }, Host::default()];
        let beats = hosts[1].beats.clone();
        let connect: Arc<dyn Connect> = Arc::new(Hosts(hosts));
        let (emit, _events) = Emitter::new();
        let engine = Engine::new(&connect, 2, 1, emit);
        let site = |host: usize| Site {
            name: "n".to_owned(),
            host: format!("gpu0{host}"),
            run: String::new(),
            base: "/r".to_owned(),
            sudo: false,
            engine: None,
            contained: false,
            token: Some("tok".to_owned()),
            old: false,
            log_max: 0,
            ranks: 0,
        };
        let who = Identity { token: "tok".to_owned(), owner: "me".to_owned(), laptop: "lap".to_owned(), pid: 1, alive: |_| true };
        let held = engine.lock(vec![(0, site(0)), (1, site(1))], &who, Duration::ZERO, false).await;
        assert!(held.is_ok());
        let _step = engine.forks.clone().acquire_owned().await;
        let twice = async {
            while beats.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), twice).await.is_ok(), "{} beats", beats.load(Ordering::Relaxed));
    }
}

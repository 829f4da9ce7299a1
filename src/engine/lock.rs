#![expect(clippy::disallowed_methods, reason = "the engine owns tasks")]
//! Takes the name's lock on every host, shows that its holder lives, gives it back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::emitter::now_unix_millis;
use crate::engine::host_connection::HostConnection;
use crate::model::remote_command::RemoteCommand;
use crate::plan::action::lock;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::lock_record::LockRecord;
use crate::plan::protocol::run_follower::RunFollower;
use crate::remote::RemoteError;
use crate::text::duration::format_rounded;

/// How often the holder shows that he lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(crate) struct LockIdentity {
    pub token: String,
    /// `user@laptop`.
    pub owner: String,
    pub local_machine_id: String,
    pub pid: u32,
    /// Whether a process of this laptop lives.
    pub is_process_alive: fn(u32) -> bool,
}

impl LockIdentity {
    /// What the hosts record of this command while it follows a run.
    pub(crate) fn follower_text(&self) -> String {
        RunFollower::format(&self.owner, &self.local_machine_id, self.pid)
    }
}

/// Why a name could not be locked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another operator holds it.
    #[error("{owner} holds the lock on {host} (since {age} s)")]
    Held {
        host: String,
        owner: String,
        /// The age of its last sign of life.
        age: i64,
    },
    /// Its holder is no longer waited for.
    #[error("the wait for the lock was cancelled")]
    Cancelled,
    /// A host did not answer.
    #[error("{host}: {error}")]
    Remote { host: String, error: RemoteError },
    /// The lock cannot be made.
    #[error("{host}: could not take the lock: {message}")]
    AcquireFailed {
        host: String,
        /// The host's message.
        message: String,
    },
}

/// A held lock. It must be released; dropped, it becomes stale by itself.
pub(crate) struct HeldLock {
    /// The run that was current on each host when it was locked; empty: none.
    pub current_runs: Vec<(usize, String)>,
    hosts: Vec<(usize, HostContext)>,
    heartbeat_cancel: CancellationToken,
    heartbeat_task: tokio::task::JoinHandle<()>,
}

/// How a lock is requested.
#[derive(Debug, Clone)]
pub(crate) struct LockRequest {
    /// How long its holder is waited for.
    pub wait: Duration,
    /// Take it from a live holder.
    pub force: bool,
    /// A host that is lost or full comes beside the lock, and does not prevent the others from being locked.
    pub skip_unavailable: bool,
    /// Ends the wait for the holder.
    pub give_up: CancellationToken,
}

impl Engine {
    /// Locks the name on the given hosts: the first alone, since every operator begins there, then the others at once. With it come the hosts
    /// that could not be locked.
    ///
    /// # Errors
    /// Another process holds it, or a host that is not to be skipped did not answer; acquired locks are released.
    pub(crate) async fn lock_hosts(
        &self,
        contexts: Vec<(usize, HostContext)>,
        identity: &LockIdentity,
        request: LockRequest,
    ) -> Result<(HeldLock, Vec<(usize, LockError)>), LockError> {
        let until = tokio::time::Instant::now() + request.wait;
        let (mut taken, mut current, mut without) = (Vec::new(), Vec::new(), Vec::new());
        let mut trouble = None;
        let mut sites = contexts.into_iter().peekable();
        while sites.peek().is_some() && trouble.is_none() {
            // Until there is a first one they are asked one after the other.
            let group = if taken.is_empty() { 1 } else { usize::MAX };
            let mut tasks = JoinSet::new();
            for (index, context) in sites.by_ref().take(group) {
                let Some(link) = self.connections.get(index).cloned() else { continue };
                let (owner, request) = (identity.clone(), request.clone());
                tasks.spawn(async move { ((index, context.clone()), acquire_lock(&link, &context, &owner, until, &request).await) });
            }
            while let Some(done) = tasks.join_next().await {
                match done {
                    Ok((context, Ok(run))) => {
                        current.push((context.0, run));
                        taken.push(context);
                    }
                    Ok((context, Err(error))) if request.skip_unavailable && !matches!(error, LockError::Held { .. }) => {
                        without.push((context.0, error))
                    }
                    Ok((_, Err(error))) => trouble = Some(error),
                    Err(_) => {}
                }
            }
        }
        if let Some(error) = trouble {
            self.release_locks(&taken).await;
            return Err(error);
        }
        let beating = CancellationToken::new();
        let beat = tokio::spawn(run_heartbeat(self.clone(), taken.clone(), beating.clone()));
        Ok((HeldLock { current_runs: current, hosts: taken, heartbeat_cancel: beating, heartbeat_task: beat }, without))
    }

    /// Gives a lock back; a host that does not answer loses it by age.
    pub(crate) async fn unlock_hosts(&self, held: HeldLock) {
        held.heartbeat_cancel.cancel();
        if held.heartbeat_task.await.is_err() {
            tracing::debug!("the lock's heartbeat ended early");
        }
        self.release_locks(&held.hosts).await;
    }

    async fn release_locks(&self, contexts: &[(usize, HostContext)]) {
        let commands = contexts.iter().map(|(index, context)| (*index, lock::release_lock_command(context))).collect();
        for (host, answer) in self.fan_out(commands).await {
            if let Err(error) = answer {
                tracing::warn!(host, %error, "the lock was not given back; it ends by age");
            }
        }
    }
}

async fn acquire_lock(
    connection: &Arc<HostConnection>,
    context: &HostContext,
    identity: &LockIdentity,
    until: tokio::time::Instant,
    request: &LockRequest,
) -> Result<String, LockError> {
    let host = || context.host.clone();
    let lost = |error| LockError::Remote { host: host(), error };
    let text =
        LockRecord::format_link_text(&identity.token, now_unix_millis() / 1000, identity.pid, &identity.local_machine_id, &identity.owner);
    let mut is_announced = false;
    loop {
        let output = connection.exec(&lock::acquire_lock_command(context, &text)).await.map_err(lost)?;
        if output.is_success() {
            return Ok(output.stdout_text().trim().to_owned());
        }
        if output.exit_code != lock::EXIT_LOCK_HELD {
            return Err(LockError::AcquireFailed { host: host(), message: output.error_line() });
        }
        // The lock as it stands, with its age on the host's own clock.
        let inspected = connection.exec(&lock::inspect_lock_command(context)).await.map_err(lost)?;
        let Some(found) = HostFacts::parse(&inspected.stdout_text()).lock else { continue };
        if request.force || lock::is_lock_stale(&found, &identity.local_machine_id, identity.is_process_alive) {
            connection.emitter().send_notice(Some(connection.host_index()), format!("the lock of {} is taken over", found.owner), true);
            connection.exec(&lock::break_lock_command(context, &found)).await.map_err(lost)?;
            continue;
        }
        if request.give_up.is_cancelled() {
            return Err(LockError::Cancelled);
        }
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            return Err(LockError::Held { host: host(), owner: found.owner, age: found.heartbeat_age });
        }
        if !is_announced {
            is_announced = true;
            // Rounded up to a second.
            let left = format_rounded(i64::try_from(left.as_millis()).unwrap_or(i64::MAX).saturating_add(999));
            let text = format!("{} holds the lock: waiting for up to {left}", found.owner);
            connection.emitter().send_notice(Some(connection.host_index()), text, false);
        }
        request.give_up.run_until_cancelled(tokio::time::sleep(Duration::from_millis(500))).await;
    }
}

/// Shows on every host that the holder lives. Needs none of the `forks`, which steps keep for as long as they run, and a host that hangs delays
/// no other.
async fn run_heartbeat(engine: Engine, contexts: Vec<(usize, HostContext)>, end: CancellationToken) {
    let hosts =
        contexts.iter().filter_map(|(host, context)| Some((engine.connections.get(*host)?.clone(), lock::renew_lock_command(context))));
    let end = &end;
    let beat = |(link, command): (Arc<HostConnection>, RemoteCommand)| async move {
        while end.run_until_cancelled(tokio::time::sleep(HEARTBEAT_INTERVAL)).await.is_some() {
            match tokio::time::timeout(command.timeout, link.exec(&command)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(host = link.host_index(), %error, "the lock's heartbeat did not arrive"),
                Err(_) => tracing::debug!(host = link.host_index(), "the lock's heartbeat did not arrive in time"),
            }
        }
    };
    join_all(hosts.map(beat)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::engine::emitter::Emitter;
    use crate::model::remote_command::CommandOutput;
    use crate::remote::stub_remote::StubRemote;
    use crate::remote::{HostConnector, Remote};

    /// A host that says yes to all; one that is deaf never answers a heartbeat.
    #[derive(Clone, Default)]
    struct StubHost {
        ignores_heartbeats: bool,
        heartbeat_count: Arc<AtomicUsize>,
    }

    impl StubRemote for StubHost {
        fn exec<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
            Box::pin(async move {
                if command.title == "renew the lock" {
                    self.heartbeat_count.fetch_add(1, Ordering::Relaxed);
                    if self.ignores_heartbeats {
                        std::future::pending::<()>().await;
                    }
                }
                Ok(CommandOutput { exit_code: 0, stdout: Vec::new(), stderr: Vec::new(), dropped_bytes: 0, elapsed: Duration::ZERO })
            })
        }
    }

    struct StubConnector(Vec<StubHost>);

    impl HostConnector for StubConnector {
        fn retry_window(&self, _: usize) -> Duration {
            Duration::MAX
        }

        fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
            let host: Arc<dyn Remote> = Arc::new(self.0[host].clone());
            Box::pin(async move { Ok(host) })
        }
    }

    #[tokio::test]
    async fn long_steps_and_hung_hosts_do_not_block_heartbeats() {
        let hosts = vec![StubHost { ignores_heartbeats: true, ..StubHost::default() }, StubHost::default()];
        let beats = hosts[1].heartbeat_count.clone();
        let connect: Arc<dyn HostConnector> = Arc::new(StubConnector(hosts));
        let (emit, _events) = Emitter::new();
        let engine = Engine::new(&connect, 2, 1, emit);
        let context =
            |host: usize| HostContext { lock_token: Some("tok".to_owned()), ..HostContext::new("n", format!("gpu0{host}"), "/r") };
        let identity = LockIdentity {
            token: "tok".to_owned(),
            owner: "me".to_owned(),
            local_machine_id: "lap".to_owned(),
            pid: 1,
            is_process_alive: |_| true,
        };
        let request = LockRequest { wait: Duration::ZERO, force: false, skip_unavailable: false, give_up: CancellationToken::new() };
        let held = engine.lock_hosts(vec![(0, context(0)), (1, context(1))], &identity, request).await;
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

//! A cluster on loopback: fake hosts behind real SSH that run what they are sent in a real shell, with stand-ins for docker, nvidia-smi,
//! torchrun and sudo. The demo, the tests and the benchmarks use it.
//!
//! Must not use `plan`: if it shared code with our commands, it would prove nothing.
//!
//! Limits: nothing is chrooted (a container sees this machine's files; a mount whose two paths differ is honoured for the working
//! directory only), users are not changed, limits (`--shm-size`, `--ulimit`, `:ro`) are recorded and not enforced, restart policies do nothing.
//! All hosts live on 127.0.0.1 and share its ports and this machine's clock and boot id. On macOS there is no
//! `/proc` and no `/dev/shm`, `ps` does not show sessions, and `date`, `stat` and the like are BSD's; a `setsid` is provided.
#![expect(clippy::disallowed_methods, reason = "the sandbox stands in for hosts: it has their processes, files and clock")]

mod dispatch;
mod docker;
mod error;
mod fake_host;
mod fake_program;
mod faulty_stream;
mod go_template;
mod go_template_parser;
mod launchers;
mod nvidia_smi;
mod processes;
mod pty;
mod scenario;
mod server;
mod torchrun;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use dispatch::dispatch_program;
pub use error::SandboxError;
pub use scenario::{Faults, HeldCommand, HostSpec, ImageSpec, OomKill, Scenario};

use fake_host::{FakeHost, FakeHostSettings};
use server::{FakeSshServer, SshKeyPair, SshLogin};

/// How long the end of every process may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> SandboxError {
    let what = what.into();
    move |source| SandboxError::Io { action: what, source }
}

struct SandboxHost {
    spec: HostSpec,
    gpus: u32,
    port: u16,
    fake_host: FakeHost,
    server: Arc<FakeSshServer>,
}

/// A running cluster of fake hosts. Its directory and its processes are gone after [`Sandbox::stop`], and also when it is dropped.
pub struct Sandbox {
    dir: tempfile::TempDir,
    program: PathBuf,
    user: String,
    hosts: Vec<SandboxHost>,
    stop: CancellationToken,
    tasks: TaskTracker,
    stopped: bool,
    _alive_lock: std::fs::File,
}

impl Sandbox {
    /// Starts the hosts of `scenario`; this very executable is their docker, nvidia-smi and torchrun.
    pub async fn start(scenario: Scenario) -> Result<Self, SandboxError> {
        let program = std::env::current_exe().map_err(io_error("find this program"))?;
        Sandbox::start_with(scenario, program).await
    }

    /// As [`Sandbox::start`], where another file than this executable is `orchestrate` (a test's own executable is not).
    pub async fn start_with(scenario: Scenario, program: PathBuf) -> Result<Self, SandboxError> {
        let scenario = scenario.validate()?;
        raise_nofile_limit();
        let dir = tempfile::Builder::new().prefix("sandbox-").tempdir().map_err(io_error("make the sandbox's directory"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        fake_host::write_tools_path(dir.path(), &path).map_err(io_error("find the tools of the sandbox"))?;
        let alive = hold_lock(&dir.path().join("alive")).map_err(io_error("lock the sandbox's directory"))?;
        let client = SshKeyPair::generate().map_err(io_error("make the client's key"))?;
        let mut sandbox = Sandbox {
            dir,
            program,
            user: scenario.user.clone(),
            hosts: Vec::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            stopped: false,
            _alive_lock: alive,
        };
        let mut known = String::new();
        for spec in &scenario.hosts {
            known.push_str(&sandbox.add_host(&scenario, spec, &client).await?);
        }
        sandbox.write_client_files(&client, &known).map_err(io_error("write the sandbox's keys"))?;
        Ok(sandbox)
    }

    /// Adds a host; returns its line for known_hosts.
    async fn add_host(&mut self, scenario: &Scenario, spec: &HostSpec, client: &SshKeyPair) -> Result<String, SandboxError> {
        let settings = FakeHostSettings {
            name: spec.name.clone(),
            gpus: spec.gpus.unwrap_or(scenario.gpus),
            gpu_model: scenario.gpu_model.clone(),
            gpu_memory_mib: scenario.gpu_memory_mib,
            images: spec.images.clone().unwrap_or_else(|| scenario.images.clone()),
            registry: scenario.registry.clone(),
            logins: scenario.logins.clone(),
            image_details: scenario.image_details.clone(),
        };
        let what = format!("make the sandbox host {}", spec.name);
        let faults = spec.faults.clone().unwrap_or_else(|| scenario.faults.clone());
        let root = self.dir.path().join("hosts").join(&spec.name);
        let fake_host = FakeHost::create(root, &settings, &faults, &self.program).map_err(io_error(what.clone()))?;
        let own = SshKeyPair::generate().map_err(io_error(what.clone()))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(io_error(what.clone()))?;
        let port = listener.local_addr().map_err(io_error(what))?.port();
        let line = format!("[127.0.0.1]:{port} {}\n", own.public);
        let login = SshLogin::new(&self.user, scenario.password.clone(), client);
        let fake = Arc::new(FakeSshServer::new(fake_host.clone(), login, own, &self.program));
        self.tasks.spawn(server::serve_connections(Arc::clone(&fake), listener, self.stop.clone(), self.tasks.clone()));
        self.hosts.push(SandboxHost { spec: spec.clone(), gpus: settings.gpus, port, fake_host, server: fake });
        Ok(line)
    }

    fn write_client_files(&self, client: &SshKeyPair, known: &str) -> io::Result<()> {
        let dir = self.dir.path();
        std::fs::write(dir.join("client_key"), &client.private)?;
        std::fs::set_permissions(dir.join("client_key"), std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(dir.join("client_key.pub"), format!("{}\n", client.public))?;
        std::fs::write(dir.join("known_hosts"), known)?;
        let hosts = self.hosts.iter().map(|m| format!("Host {}\n  HostName 127.0.0.1\n  Port {}\n", m.spec.name, m.port));
        std::fs::write(dir.join("ssh_config"), hosts.collect::<String>() + &self.ssh_config_defaults())?;
        // The inventory says by itself where the hosts are.
        std::fs::write(dir.join("ssh_defaults"), self.ssh_config_defaults())
    }

    fn ssh_config_defaults(&self) -> String {
        let shown = self.dir.path().display();
        format!(
            "Host *\n  User {}\n  IdentityFile {shown}/client_key\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {shown}/known_hosts\n  \
             GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n",
            self.user
        )
    }

    /// The directory that holds everything: `client_key`, `known_hosts`, `ssh_config`, `hosts/<name>/`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A known_hosts file with every host's key.
    pub fn known_hosts_path(&self) -> PathBuf {
        self.dir.path().join("known_hosts")
    }

    /// An ssh_config that knows every host by its name.
    pub fn ssh_config_path(&self) -> PathBuf {
        self.dir.path().join("ssh_config")
    }

    /// The name of a host; `None`: there is no host with this number.
    pub fn host_name(&self, index: usize) -> Option<&str> {
        self.hosts.get(index).map(|m| m.spec.name.as_str())
    }

    /// The port of the host's sshd on 127.0.0.1.
    pub fn port(&self, index: usize) -> Option<u16> {
        self.hosts.get(index).map(|m| m.port)
    }

    /// The host's directory: its home is `home` in it.
    pub fn host_root(&self, index: usize) -> Option<&Path> {
        self.hosts.get(index).map(|m| m.fake_host.root())
    }

    /// An inventory's `hosts` and `ssh`, with `extra` (further top-level keys) after them.
    pub fn inventory_yaml(&self, name: &str, extra: &str) -> String {
        let dir = self.dir.path().display();
        let hosts = self.hosts.iter().map(|m| {
            let gpus = if m.gpus == 0 { String::new() } else { format!(", gpus: {}", m.gpus) };
            format!("  - {{ name: {}, address: 127.0.0.1, fabric_address: 127.0.0.1{gpus}, ssh: {{ port: {} }} }}\n", m.spec.name, m.port)
        });
        format!(
            "name: {name}\nhosts:\n{}ssh:\n  user: {}\n  config: {dir}/ssh_defaults\n  identity: {dir}/client_key\n  known_hosts: {dir}/known_hosts\n{extra}",
            hosts.collect::<String>(),
            self.user
        )
    }

    fn find_host(&self, host: &str) -> Result<&SandboxHost, SandboxError> {
        self.hosts.iter().find(|m| m.spec.name == host).ok_or_else(|| SandboxError::UnknownHost(host.to_owned()))
    }

    /// Cuts every open connection of a host; its processes continue.
    pub fn drop_connections(&self, host: &str) -> Result<(), SandboxError> {
        self.find_host(host)?.server.drop_connections();
        Ok(())
    }

    /// Changes what is wrong with a host, from the next event on.
    pub fn set_faults(&self, host: &str, faults: &Faults) -> Result<(), SandboxError> {
        let member = self.find_host(host)?;
        member.fake_host.set_faults(faults, &self.program).map_err(io_error(format!("change the faults of {host}")))
    }

    /// The processes that the hosts have started and that live.
    pub fn processes(&self) -> Vec<i32> {
        processes::find_marked(&self.env_marker())
    }

    fn env_marker(&self) -> String {
        format!("SANDBOX_DIR={}", self.dir.path().display())
    }

    /// Ends every connection and every process; an error names the processes that are still there.
    pub async fn stop(mut self) -> Result<(), SandboxError> {
        self.stop.cancel();
        self.hosts.iter().for_each(|m| m.server.drop_connections());
        let marker = self.env_marker();
        let killed = tokio::task::spawn_blocking(move || processes::kill_marked(&marker, STOP_TIMEOUT)).await;
        let left =
            killed.map_err(|e| SandboxError::Io { action: "end the sandbox's processes".to_owned(), source: io::Error::other(e) })?;
        self.stopped = true;
        if !left.is_empty() {
            return Err(SandboxError::LeftoverProcesses(left));
        }
        self.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks of the sandbox did not end");
        }
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.stopped {
            return;
        }
        self.stop.cancel();
        let left = processes::kill_marked(&self.env_marker(), STOP_TIMEOUT);
        if !left.is_empty() {
            tracing::warn!(?left, "processes of the sandbox are still alive");
        }
    }
}

/// Holds a lock as long as this process lives: a container's keeper ends the container when it can take the lock.
fn hold_lock(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// Each host and each command needs a few descriptors; many systems start with 256 or 1024.
fn raise_nofile_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(65_536, |most| most.min(65_536));
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
    {
        tracing::debug!(%error, "the limit of open files stays");
    }
}

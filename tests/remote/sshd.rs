//! A real sshd on loopback for one test: its own directory, keys and port, run as the user of the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrate::inventory::{GpuSelection, HostKeyChecking, HostSshSettings, InventoryHost};
use orchestrate::remote::{HostConnector, Remote, RemoteError, SharedHost, SshFleet, SshSettings};

pub(crate) use crate::scripted_prompt::ScriptedPrompt;

/// The server and everything needed to reach it.
pub(crate) struct Sshd {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    child: Child,
}

pub(crate) fn run_command(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().expect("the program is there");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn generate_key(path: &Path, kind: &str, passphrase: &str) {
    run_command("ssh-keygen", &["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", path.to_str().expect("utf-8")]);
}

pub(crate) fn current_user() -> String {
    run_command("id", &["-un"]).trim().to_owned()
}

impl Sshd {
    pub(crate) fn start() -> Self {
        Self::start_with("", &["ed25519"])
    }

    /// Starts a server with more configuration lines and host keys of these types.
    pub(crate) fn start_with(more: &str, kinds: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let mut config = String::new();
        for kind in kinds {
            generate_key(&at(&format!("host_{kind}")), kind, "");
            config.push_str(&format!("HostKey {}\n", at(&format!("host_{kind}")).display()));
        }
        generate_key(&at("id"), "ed25519", "");
        std::fs::copy(at("id.pub"), at("authorized")).expect("copied");
        std::fs::write(at("ssh_config"), "").expect("written");
        if current_user() == "root" {
            std::fs::create_dir_all("/run/sshd").expect("sshd's own folder");
        }
        let listen = if more.contains("ListenAddress") { "" } else { "ListenAddress 127.0.0.1\n" };
        config.push_str(&format!(
            "{listen}AuthorizedKeysFile {}\nStrictModes no\nPidFile none\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nLogLevel VERBOSE\nUsePAM no\nMaxStartups 10:30:100\nSetEnv HOME={}\n{more}\n",
            at("authorized").display(),
            dir.path().display(),
        ));
        // Another program may take a free port before sshd binds it.
        let (port, child) = std::iter::repeat_with(|| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            drop(listener);
            std::fs::write(at("sshd_config"), format!("Port {port}\n{config}")).expect("written");
            spawn_sshd(dir.path()).map(|child| (port, child))
        })
        .take(10)
        .find_map(|served| served)
        .expect("one of ten ports is free");
        Sshd { dir, port, child }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn path_string(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.path_string(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log contains these words exactly `times` times. The log may lag: each connection's process passes its messages on.
    pub(crate) async fn wait_for_log(&self, words: &str, times: usize) {
        wait_until(&format!("the log contains {words:?} {times} times"), || self.log().matches(words).count() >= times).await;
        assert_eq!(self.log().matches(words).count(), times, "{words:?}: {}", self.log());
    }

    /// The known_hosts line for a host key of this server.
    pub(crate) fn known_hosts_line(&self, kind: &str) -> String {
        let text = std::fs::read_to_string(self.path(&format!("host_{kind}.pub"))).expect("a host key");
        let words: Vec<&str> = text.split_whitespace().take(2).collect();
        format!("[127.0.0.1]:{} {}\n", self.port, words.join(" "))
    }

    /// An inventory host for this server; its key is known.
    pub(crate) fn host(&self, name: &str) -> InventoryHost {
        if !self.path("known").exists() {
            let kind = ["ed25519", "ecdsa", "rsa"].into_iter().find(|k| self.path(&format!("host_{k}")).exists()).expect("a key");
            self.write("known", &self.known_hosts_line(kind));
        }
        let ssh = HostSshSettings {
            user: Some(current_user()),
            port: Some(self.port),
            identity_files: vec![self.path_string("id")],
            known_hosts_file: Some(self.path_string("known")),
            host_key_checking: Some(HostKeyChecking::Strict),
            // A busy machine may need longer than the default for one handshake.
            connect_timeout: Some(Duration::from_secs(60)),
            ..HostSshSettings::default()
        };
        InventoryHost { name: name.to_owned(), address: Some("127.0.0.1".to_owned()), fabric_address: None, gpus: GpuSelection::Any, ssh }
    }

    pub(crate) fn settings(&self, person: &Arc<ScriptedPrompt>) -> SshSettings {
        SshSettings {
            home: self.dir.path().to_owned(),
            inventory_dir: self.dir.path().to_owned(),
            config_file: Some(self.path("ssh_config")),
            agent_socket: None,
            search_path: std::env::var_os("PATH"),
            local_user: current_user(),
            prompt: person.clone(),
            max_handshakes: 64,
            env: Arc::new(|name| (name == "SSH_PASSWORD").then(|| "wrong".to_owned())),
        }
    }

    pub(crate) fn fleet(&self, hosts: Vec<InventoryHost>) -> SshFleet {
        SshFleet::new(hosts, self.settings(&Arc::new(ScriptedPrompt::without_answers())))
    }

    /// One login node with this many hosts behind it.
    pub(crate) fn shared_by(&self, count: usize) -> SharedHost {
        SharedHost::new(self.host("login01"), count, self.settings(&Arc::new(ScriptedPrompt::without_answers())))
    }

    pub(crate) async fn connect(&self) -> Arc<dyn Remote> {
        self.fleet(vec![self.host("gpu01")]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()))
    }

    /// The processes that serve connections, newest last.
    pub(crate) fn session_pids(&self) -> Vec<String> {
        child_pids(&self.child.id().to_string())
    }

    /// Sends the listening server a signal.
    pub(crate) fn signal(&self, name: &str) {
        run_command("kill", &[&format!("-{name}"), &self.child.id().to_string()]);
    }

    /// Kills all processes that serve connections, like a network fault or an OOM killer.
    pub(crate) fn kill_connections(&self) {
        for pid in self.session_pids() {
            // Kill the process with the connection first: otherwise it would still report the end of its shell.
            let below = child_pids(&pid);
            kill_pid(&pid);
            below.iter().for_each(|pid| kill_pid(pid));
        }
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start_stopped();
    }

    /// Starts the server again after [`Sshd::stop`].
    pub(crate) fn start_stopped(&mut self) {
        let mut child = None;
        wait_until_blocking("its port is free", || {
            child = spawn_sshd(self.dir.path());
            child.is_some()
        });
        self.child = child.expect("it serves");
    }

    pub(crate) fn stop(&mut self) {
        self.kill_connections();
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

/// Starts the server of a directory; `None` if its port is taken.
fn spawn_sshd(dir: &Path) -> Option<Child> {
    let log = std::fs::File::create(dir.join("log")).expect("a log");
    let mut child = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("sshd starts");
    let text = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    let taken = || text().contains("Address already in use");
    wait_until_blocking("sshd listens", || text().contains("Server listening") || taken());
    if taken() {
        child.kill().ok();
        child.wait().expect("ended");
        return None;
    }
    Some(child)
}

impl Drop for Sshd {
    fn drop(&mut self) {
        for pid in self.session_pids() {
            kill_pid(&pid);
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A loopback port where connecting hangs: its backlog is full, and nothing accepts from it.
pub(crate) fn full_backlog_port() -> (Vec<socket2::Socket>, u16) {
    let new = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let listener = new();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
    listener.listen(0).expect("listens");
    let address = listener.local_addr().expect("bound");
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let socket = new();
        socket.set_nonblocking(true).expect("set");
        socket.connect(&address).ok();
        sockets.push(socket);
    }
    (sockets, address.as_socket().expect("an address").port())
}

pub(crate) fn child_pids(pid: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn kill_pid(pid: &str) {
    Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status().expect("kill runs");
}

/// Polls until the condition holds; fails after a minute.
pub(crate) fn wait_until_blocking(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Like [`wait_until_blocking`], but does not block other tasks.
pub(crate) async fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asserts a refusal; returns its message and hint.
pub(crate) fn expect_refusal(result: Result<Arc<dyn Remote>, RemoteError>) -> (String, String) {
    match result {
        Ok(_) => panic!("it connected"),
        Err(error) => {
            assert!(matches!(error, RemoteError::Refused { .. }), "{error:?}");
            assert!(!error.is_retryable());
            (error.to_string(), error.hint().to_owned())
        }
    }
}

//! One fake host as its SSH server sees it: keys, permitted logins, and the shell that a command gets.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::{MethodKind, MethodSet};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::super::fake_host::FakeHost;
use super::super::scenario::{Faults, HeldCommand};

/// A key pair as text.
pub(in super::super) struct SshKeyPair {
    /// OpenSSH private key file.
    pub(in super::super) private: String,
    /// `ssh-ed25519 AAAA…`
    pub(in super::super) public: String,
    key: PrivateKey,
}

impl SshKeyPair {
    /// Makes a new one.
    pub(in super::super) fn generate() -> io::Result<Self> {
        let mut seed = [0_u8; 32];
        getrandom::fill(&mut seed)?;
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
        let private = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?.to_string();
        let public = key.public_key().to_openssh().map_err(io::Error::other)?;
        Ok(SshKeyPair { private, public, key })
    }
}

/// The user that may log in, and the accepted credentials.
pub(in super::super) struct SshLogin {
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) client_key: PublicKey,
}

impl SshLogin {
    pub(in super::super) fn new(user: &str, password: Option<String>, client: &SshKeyPair) -> Self {
        SshLogin { user: user.to_owned(), password, client_key: client.key.public_key().clone() }
    }
}

/// What the server must know about one fake host.
pub(in super::super) struct FakeSshServer {
    pub(super) host: FakeHost,
    pub(super) login: SshLogin,
    pub(super) config: Arc<russh::server::Config>,
    setsid_path: Option<&'static str>,
    program: std::path::PathBuf,
    connections_token: Mutex<CancellationToken>,
    /// How many commands were counted since a fault asks for it.
    command_count: AtomicU32,
}

impl FakeSshServer {
    /// How this command is held, if it is: counts it.
    pub(super) fn take_matching_hold(&self, faults: &Faults) -> Option<HeldCommand> {
        let Some(hold) = &faults.hold else {
            self.command_count.store(0, Ordering::Relaxed);
            return None;
        };
        let call = self.command_count.fetch_add(1, Ordering::Relaxed) + 1;
        (call == hold.call).then(|| hold.clone())
    }

    /// A host that lets one user in.
    pub(in super::super) fn new(host: FakeHost, login: SshLogin, own: SshKeyPair, program: &Path) -> Self {
        let mut methods = vec![MethodKind::PublicKey];
        methods.extend(login.password.as_ref().map(|_| MethodKind::Password));
        let config = russh::server::Config {
            methods: MethodSet::from(methods.as_slice()),
            server_id: russh::SshId::Standard("SSH-2.0-OpenSSH_9.2-sandbox".into()),
            auth_rejection_time: Duration::from_millis(10),
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![own.key],
            inactivity_timeout: None,
            nodelay: true,
            ..russh::server::Config::default()
        };
        FakeSshServer {
            host,
            login,
            config: Arc::new(config),
            setsid_path: ["/usr/bin/setsid", "/bin/setsid"].into_iter().find(|path| Path::new(path).exists()),
            program: program.to_path_buf(),
            connections_token: Mutex::new(CancellationToken::new()),
            command_count: AtomicU32::new(0),
        }
    }

    /// Cuts every connection of this host that is open now.
    pub(in super::super) fn drop_connections(&self) {
        let mut current = self.connections_token.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
    }

    pub(super) fn connection_token(&self) -> CancellationToken {
        self.connections_token.lock().unwrap_or_else(std::sync::PoisonError::into_inner).child_token()
    }

    /// A command in the user's shell, in a session of its own as sshd does it.
    pub(super) fn shell_command(&self, text: &str, extra: &[(String, String)]) -> Command {
        let mut command = match self.setsid_path {
            Some(setsid) => {
                let mut command = Command::new(setsid);
                command.arg("/bin/sh");
                command
            }
            None => self.shim_command(&["setsid", "/bin/sh"]),
        };
        self.configure_command(&mut command, text, extra);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same, with its standard input as the session's terminal.
    pub(super) fn shell_command_with_tty(&self, text: &str, extra: &[(String, String)]) -> Command {
        let mut command = self.shim_command(&["setsid", "-c", "/bin/sh"]);
        self.configure_command(&mut command, text, extra);
        command
    }

    fn shim_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0("sandbox-shim").args(words);
        command
    }

    fn configure_command(&self, command: &mut Command, text: &str, extra: &[(String, String)]) {
        command.args(["-c", text]).env_clear().envs(self.host.environment(&self.login.user)).envs(extra.iter().cloned());
        command.current_dir(self.host.root().join("home"));
    }
}

//! Every login method against OpenSSH 9.2 (gpu01) and 10.0 (gpu02): the server's log shows which one was used. Each test starts its own
//! servers with PAM beside the hosts' sshd, one port per method, and stops them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use orchestrate::inventory::{GpuSelection, HostSshSettings, InventoryHost};
use orchestrate::remote::{HostConnector as _, SshFleet, SshSettings};
use sha1::Sha1;

use crate::fake_agent::SecurityKeyAgent;
use crate::laptop::{Laptop, path_str, wait_until};
use crate::scripted_prompt::ScriptedPrompt;
use crate::support::{Cluster, JobSpec};

/// The user with a password (`image/Dockerfile`).
const PASSWORD_USER: &str = "pass";
const PASSWORD: &str = "open sesame";
/// From the example of RFC 6238.
const TOTP_SEED_HEX: &str = "3132333435363738393031323334353637383930";
const OLD_AND_NEW_OPENSSH: [&str; 2] = ["gpu01", "gpu02"];

const PUBLICKEY_PORT: u16 = 2221;
const KEYBOARD_INTERACTIVE_PORT: u16 = 2222;
const KEY_THEN_KEYBOARD_INTERACTIVE_PORT: u16 = 2223;
const KEY_THEN_PASSWORD_PORT: u16 = 2224;
const PASSWORD_THEN_KEYBOARD_INTERACTIVE_PORT: u16 = 2225;
const PASSWORD_PORT: u16 = 2226;
const TWO_KEYS_PORT: u16 = 2227;

const AUTH_METHODS_BY_PORT: [(u16, &str); 7] = [
    (PUBLICKEY_PORT, "publickey"),
    (KEYBOARD_INTERACTIVE_PORT, "keyboard-interactive"),
    (KEY_THEN_KEYBOARD_INTERACTIVE_PORT, "publickey,keyboard-interactive"),
    (KEY_THEN_PASSWORD_PORT, "publickey,password"),
    (PASSWORD_THEN_KEYBOARD_INTERACTIVE_PORT, "password,keyboard-interactive"),
    (PASSWORD_PORT, "password"),
    (TWO_KEYS_PORT, "publickey,publickey"),
];

/// Servers on the hosts, and the client's files.
struct AuthServers<'a> {
    cluster: &'a Cluster,
    laptop: Laptop,
    hosts: &'static [&'static str],
}

impl<'a> AuthServers<'a> {
    /// Starts a server on each host. With `codes` it prompts for a password and a code, else for a password.
    fn start(cluster: &'a Cluster, hosts: &'static [&'static str], codes: bool) -> Self {
        let ports: String = AUTH_METHODS_BY_PORT.iter().map(|(port, _)| format!("Port {port}\n")).collect();
        let methods: String = AUTH_METHODS_BY_PORT
            .iter()
            .map(|(port, method)| format!("Match LocalPort {port}\n AuthenticationMethods {method}\n"))
            .collect();
        let oath = if codes { "auth required pam_oath.so usersfile=/etc/ssh/login/oath window=5 digits=6\n" } else { "" };
        for host in hosts {
            let output = cluster.exec_on(
                host,
                &format!(
                    "find /usr/lib -name pam_oath.so | grep -q . || {{ echo old image; exit 0; }}\n\
                     {STOP_SERVERS_SCRIPT}\nmkdir -p /etc/ssh/login && cp -p /etc/pam.d/sshd /etc/ssh/login/pam\n\
                     printf 'HOTP/T30/6 {PASSWORD_USER} - {TOTP_SEED_HEX}\\n' >/etc/ssh/login/oath && chmod 600 /etc/ssh/login/oath\n\
                     cat >/etc/pam.d/sshd <<'PAM'\nauth required pam_unix.so\n{oath}account required pam_permit.so\nsession required pam_permit.so\nPAM\n\
                     cat >/etc/ssh/login/config <<'SSHD'\n{ports}UsePAM yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication yes\n\
                     AuthorizedKeysFile /etc/ssh/login/keys\nStrictModes no\nPidFile /etc/ssh/login/pid\nLogLevel VERBOSE\nUseDNS no\n{methods}SSHD\n\
                     : >/etc/ssh/login/keys && /usr/sbin/sshd -f /etc/ssh/login/config -E /etc/ssh/login/log"
                ),
            );
            assert!(!output.contains("old image"), "{host} has no libpam-oath: run `tests/cluster/hosts up`");
            wait_until("the server listens", || cluster.exec_on(host, "cat /etc/ssh/login/log").contains("Server listening").then_some(()));
        }
        AuthServers { cluster, laptop: Laptop::new(), hosts }
    }

    fn generate_key(&self, name: &str, kind: &str, passphrase: &str) -> String {
        let file = self.key_path(name);
        run_ssh_keygen(&["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", &file]);
        file
    }

    fn key_path(&self, name: &str) -> String {
        path_str(&self.laptop.home().join(name)).to_owned()
    }

    fn read_public_key(&self, name: &str) -> String {
        std::fs::read_to_string(self.key_path(&format!("{name}.pub"))).expect("a public key")
    }

    /// The keys that the servers accept.
    fn authorize_keys(&self, lines: &str) {
        for host in self.hosts {
            self.cluster.exec_on(host, &format!("cat >/etc/ssh/login/keys <<'KEYS'\n{lines}\nKEYS"));
        }
    }

    fn host_with_identity(&self, host: &str, port: u16, identity: &[&str]) -> InventoryHost {
        let address = self.cluster.exec_on(host, "hostname -i").split_whitespace().next().expect("an address").to_owned();
        let ssh = HostSshSettings {
            user: Some(PASSWORD_USER.to_owned()),
            port: Some(port),
            identity_files: identity.iter().map(|i| (*i).to_owned()).collect(),
            known_hosts_file: Some(path_str(&self.cluster.client_file("known_hosts")).to_owned()),
            config_file: Some("./ssh_config".to_owned()),
            ..HostSshSettings::default()
        };
        InventoryHost { name: host.to_owned(), address: Some(address), fabric_address: None, gpus: GpuSelection::Any, ssh }
    }

    fn client_settings(&self, person: &Arc<ScriptedPrompt>, agent: Option<PathBuf>) -> SshSettings {
        self.laptop.write_file("ssh_config", "");
        SshSettings {
            home: self.laptop.home().to_owned(),
            inventory_dir: self.laptop.home().to_owned(),
            config_file: None,
            agent_socket: agent,
            search_path: std::env::var_os("PATH"),
            local_user: "tester".to_owned(),
            prompt: person.clone(),
            max_handshakes: 16,
            env: Arc::new(|name| (name == "HOST_PASSWORD").then(|| PASSWORD.to_owned())),
        }
    }

    /// Returns what the host's server logs during `work`.
    fn capture_server_log<T>(&self, host: &str, work: impl FnOnce() -> T) -> (T, String) {
        let size = self.cluster.exec_on(host, "wc -c </etc/ssh/login/log").trim().parse::<usize>().expect("a size");
        let done = work();
        (done, self.cluster.exec_on(host, &format!("tail -c +{} /etc/ssh/login/log", size + 1)))
    }

    /// Logs in once; the server's log contains every text of `says`, in this order.
    #[track_caller]
    fn assert_login(&self, what: &str, host: InventoryHost, settings: SshSettings, expected: &[&str]) {
        let name = host.name.clone();
        let (result, log) = self.capture_server_log(&name, || connect_all(SshFleet::new(vec![host], settings), 1));
        assert_eq!(result, [Ok(())], "{what} on {name}:\n{log}");
        let mut rest = log.as_str();
        for line in expected {
            let at = rest.find(line).unwrap_or_else(|| panic!("{what} on {name}: no `{line}` in\n{log}"));
            rest = &rest[at..];
        }
        let messages = log
            .lines()
            .filter(|l| l.contains(&format!(" for {PASSWORD_USER} from ")) && (l.starts_with("Accepted ") || l.starts_with("Partial ")));
        eprintln!("{name}: {what}: {}", messages.collect::<Vec<_>>().join("; "));
    }

    fn stop(self) {
        for host in self.hosts {
            self.cluster.exec_on(host, STOP_SERVERS_SCRIPT);
        }
        self.cluster.assert_hosts_unchanged();
    }
}

/// Stops the servers and undoes all changes.
const STOP_SERVERS_SCRIPT: &str = "if [ -e /etc/ssh/login ]; then\n kill $(cat /etc/ssh/login/pid) 2>/dev/null\n\
                   pkill -f '^sshd(-session)?: pass'; pkill -f '^/bin/sleep 30$'; cp -p /etc/ssh/login/pam /etc/pam.d/sshd; rm -rf /etc/ssh/login; fi; true";

/// Connects every host of a fleet at once and closes the connections; returns errors as text.
fn connect_all(fleet: SshFleet, hosts: usize) -> Vec<Result<(), String>> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let all = futures_util::future::join_all((0..hosts).map(|n| fleet.connect(n))).await;
        let mut results = Vec::new();
        for one in all {
            results.push(match one {
                Ok(remote) => {
                    remote.close().await;
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            });
        }
        results
    })
}

fn run_ssh_keygen(words: &[&str]) {
    let out = Command::new("ssh-keygen").args(words).stdin(Stdio::null()).output().expect("ssh-keygen is there");
    assert!(out.status.success(), "ssh-keygen {words:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The RFC 6238 code that is valid now, or some steps later.
fn totp_code(later: u64) -> String {
    let key: Vec<u8> =
        (0..TOTP_SEED_HEX.len() / 2).map(|n| u8::from_str_radix(&TOTP_SEED_HEX[2 * n..2 * n + 2], 16).expect("hex")).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let mut mac = Hmac::<Sha1>::new_from_slice(&key).expect("any length");
    mac.update(&(now / 30 + later).to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let at = usize::from(digest[19] & 15);
    let number = u32::from_be_bytes([digest[at] & 127, digest[at + 1], digest[at + 2], digest[at + 3]]);
    format!("{:06}", number % 1_000_000)
}

/// OpenSSH's agent with some keys.
struct SshAgent {
    pid: String,
    socket: PathBuf,
}

impl SshAgent {
    fn start_with_keys(listeners: &AuthServers<'_>, keys: &[&str]) -> Self {
        // An agent removes its socket some time after it is killed, so the next agent gets another directory.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = listeners.laptop.home().join(format!("agent-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let out = Command::new("ssh-agent").args(["-s", "-a", path_str(&socket)]).output().expect("ssh-agent is there");
        let output = String::from_utf8_lossy(&out.stdout).into_owned();
        let pid = output.split("SSH_AGENT_PID=").nth(1).and_then(|t| t.split(';').next()).expect("a pid").to_owned();
        for key in keys {
            let added =
                Command::new("ssh-add").args(["-q", &listeners.key_path(key)]).env("SSH_AUTH_SOCK", &socket).stderr(Stdio::null()).status();
            assert!(added.expect("ssh-add is there").success(), "{key}");
        }
        SshAgent { pid, socket }
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        drop(Command::new("kill").arg(&self.pid).status());
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn keys_and_certificates_log_in_from_file_or_agent() {
    let cluster = Cluster::acquire();
    let listeners = AuthServers::start(&cluster, &OLD_AND_NEW_OPENSSH, false);
    let no_answers = Arc::new(ScriptedPrompt::without_answers());
    listeners.generate_key("ca", "ed25519", "");
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = listeners.generate_key(kind, kind, "");
        listeners.generate_key(&format!("vouched_{kind}"), kind, "");
        run_ssh_keygen(&[
            "-q",
            "-s",
            &listeners.key_path("ca"),
            "-I",
            "a-test",
            "-n",
            PASSWORD_USER,
            &listeners.key_path(&format!("vouched_{kind}.pub")),
        ]);
        let (upper, host_key) = (kind.to_uppercase(), format!("{key}.pub"));
        let wanted = format!("Accepted publickey for {PASSWORD_USER} from ");
        for host in OLD_AND_NEW_OPENSSH {
            listeners.authorize_keys(&listeners.read_public_key(kind));
            listeners.assert_login(
                &format!("{kind} key"),
                listeners.host_with_identity(host, PUBLICKEY_PORT, &[&key]),
                listeners.client_settings(&no_answers, None),
                &[&wanted, &format!("ssh2: {upper} ")],
            );
            let agent = SshAgent::start_with_keys(&listeners, &[kind]);
            let settings = listeners.client_settings(&no_answers, Some(agent.socket.clone()));
            listeners.assert_login(
                &format!("{kind} key in the agent"),
                listeners.host_with_identity(host, PUBLICKEY_PORT, &[&host_key]),
                settings,
                &[&wanted, &format!("ssh2: {upper} ")],
            );

            listeners.authorize_keys(&format!("cert-authority {}", listeners.read_public_key("ca")));
            let expected = [wanted.as_str(), &format!("ssh2: {upper}-CERT "), "ID a-test (serial 0) CA ED25519"];
            let vouched = listeners.key_path(&format!("vouched_{kind}"));
            listeners.assert_login(
                &format!("{kind} certificate"),
                listeners.host_with_identity(host, PUBLICKEY_PORT, &[&vouched]),
                listeners.client_settings(&no_answers, None),
                &expected,
            );
            let agent = SshAgent::start_with_keys(&listeners, &[&format!("vouched_{kind}")]);
            let settings = listeners.client_settings(&no_answers, Some(agent.socket.clone()));
            listeners.assert_login(
                &format!("{kind} certificate in the agent"),
                listeners.host_with_identity(host, PUBLICKEY_PORT, &[]),
                settings,
                &expected,
            );
        }
    }
    listeners.stop();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn token_encrypted_and_double_keys_log_in() {
    let cluster = Cluster::acquire();
    let listeners = AuthServers::start(&cluster, &OLD_AND_NEW_OPENSSH, false);
    let token = SecurityKeyAgent::start(listeners.laptop.home(), true);
    let locked = listeners.generate_key("locked", "ed25519", "geheim");
    let second = listeners.generate_key("second", "ecdsa", "");
    listeners.authorize_keys(
        &[token.public_key_line.clone(), listeners.read_public_key("locked"), listeners.read_public_key("second")].concat(),
    );
    let wanted = format!("Accepted publickey for {PASSWORD_USER} from ");
    let person = Arc::new(ScriptedPrompt::with_answers(&["geheim"]));
    for host in OLD_AND_NEW_OPENSSH {
        let settings = listeners.client_settings(&person, Some(token.socket.clone()));
        listeners.assert_login(
            "FIDO key in the agent",
            listeners.host_with_identity(host, PUBLICKEY_PORT, &[]),
            settings,
            &[&wanted, "ssh2: ED25519-SK "],
        );
    }
    assert_eq!((person.questions(), token.sign_requests.load(Ordering::SeqCst)), (Vec::new(), 2));
    let hosts: Vec<InventoryHost> =
        OLD_AND_NEW_OPENSSH.iter().map(|h| listeners.host_with_identity(h, PUBLICKEY_PORT, &[&locked])).collect();
    assert_eq!(connect_all(SshFleet::new(hosts, listeners.client_settings(&person, None)), 2), [Ok(()), Ok(())]);
    assert_eq!(person.questions(), ["passphrase for ~/locked"], "once for both hosts");
    for host in OLD_AND_NEW_OPENSSH {
        let person = Arc::new(ScriptedPrompt::with_answers(&["geheim"]));
        let expected = [&format!("Partial publickey for {PASSWORD_USER}"), wanted.as_str(), "ssh2: ED25519 "];
        listeners.assert_login(
            "two keys",
            listeners.host_with_identity(host, TWO_KEYS_PORT, &[&second, &locked]),
            listeners.client_settings(&person, None),
            &expected,
        );
    }
    listeners.stop();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn password_is_asked_once_for_every_method() {
    let cluster = Cluster::acquire();
    let listeners = AuthServers::start(&cluster, &OLD_AND_NEW_OPENSSH, false);
    let key = listeners.generate_key("id", "ed25519", "");
    listeners.authorize_keys(&listeners.read_public_key("id"));
    let accepted = |method: &str| format!("Accepted {method} for {PASSWORD_USER} from ");
    let partial = |method: &str| format!("Partial {method} for {PASSWORD_USER} from ");
    let methods: [(u16, Vec<String>); 5] = [
        (PASSWORD_PORT, vec![accepted("password")]),
        (KEYBOARD_INTERACTIVE_PORT, vec![accepted("keyboard-interactive/pam")]),
        (KEY_THEN_PASSWORD_PORT, vec![partial("publickey"), accepted("password")]),
        (KEY_THEN_KEYBOARD_INTERACTIVE_PORT, vec![partial("publickey"), accepted("keyboard-interactive/pam")]),
        (PASSWORD_THEN_KEYBOARD_INTERACTIVE_PORT, vec![partial("password"), accepted("keyboard-interactive/pam")]),
    ];
    for (port, expected) in &methods {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        for host in OLD_AND_NEW_OPENSSH {
            let no_answers = Arc::new(ScriptedPrompt::without_answers());
            let mut target = listeners.host_with_identity(host, *port, &[&key]);
            target.ssh.password_variable = Some("HOST_PASSWORD".to_owned());
            listeners.assert_login(&format!("port {port}"), target, listeners.client_settings(&no_answers, None), &expected);
        }
    }
    // Two hosts and two methods need one prompt; a typing error then costs no second connection.
    for answers in [&[PASSWORD][..], &["open barley", PASSWORD]] {
        let person = Arc::new(ScriptedPrompt::with_answers(answers));
        let hosts = OLD_AND_NEW_OPENSSH
            .iter()
            .flat_map(|h| {
                [listeners.host_with_identity(h, PASSWORD_PORT, &[]), listeners.host_with_identity(h, KEYBOARD_INTERACTIVE_PORT, &[])]
            })
            .collect();
        let (results, log) =
            listeners.capture_server_log("gpu02", || connect_all(SshFleet::new(hosts, listeners.client_settings(&person, None)), 4));
        assert_eq!(results, vec![Ok(()); 4], "{log}");
        assert_eq!(person.questions().len(), answers.len(), "{:?}", person.questions());
        assert_eq!(log.matches("Connection from").count(), 2, "{log}");
        assert_eq!(person.notices().iter().any(|t| t.ends_with(": not accepted")), answers.len() > 1);
    }
    listeners.stop();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn password_and_totp_code_log_in() {
    let cluster = Cluster::acquire();
    let listeners = AuthServers::start(&cluster, &OLD_AND_NEW_OPENSSH, true);
    let key = listeners.generate_key("id", "ed25519", "");
    listeners.authorize_keys(&listeners.read_public_key("id"));
    // Both hosts accept the same code, each once.
    let person = Arc::new(ScriptedPrompt::with_answers(&[PASSWORD, &totp_code(0)]));
    let hosts = OLD_AND_NEW_OPENSSH.iter().map(|h| listeners.host_with_identity(h, KEYBOARD_INTERACTIVE_PORT, &[])).collect();
    let (results, log) =
        listeners.capture_server_log("gpu01", || connect_all(SshFleet::new(hosts, listeners.client_settings(&person, None)), 2));
    assert_eq!(results, [Ok(()), Ok(())], "{log}");
    let query = person.questions();
    assert!(query.len() == 2 && query[1].starts_with("One-time password (OATH) for `pass'"), "{query:?}");
    assert!(log.contains(&format!("Accepted keyboard-interactive/pam for {PASSWORD_USER}")), "{log}");
    // One host under two names accepts a code only once, so the program prompts for a second code.
    let person = Arc::new(ScriptedPrompt::with_answers(&[PASSWORD, &totp_code(1), &totp_code(2)]));
    let twice = vec![listeners.host_with_identity("gpu02", KEY_THEN_KEYBOARD_INTERACTIVE_PORT, &[&key]); 2];
    let fleet = SshFleet::new(twice, listeners.client_settings(&person, None));
    let (results, log) = listeners.capture_server_log("gpu02", || connect_all(fleet, 2));
    assert_eq!(results, [Ok(()), Ok(())], "{log}");
    assert_eq!(person.questions().len(), 3, "{:?}", person.questions());
    assert_eq!(log.matches(&format!("Partial publickey for {PASSWORD_USER}")).count(), 2, "{log}");
    assert_eq!(log.matches(&format!("Accepted keyboard-interactive/pam for {PASSWORD_USER}")).count(), 2, "{log}");
    assert_eq!(log.matches("Connection from").count(), 2, "{log}");
    listeners.stop();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn shared_login_failure_is_reported_once() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    // A copied file keeps its mode.
    std::fs::copy(cluster.client_file("id_stranger"), laptop.home().join("stranger")).expect("copied");
    let mut job = JobSpec::busybox("strange").with_hosts(&["gpu01", "gpu02", "gpu03"]);
    job.ssh = "identity: ./stranger".to_owned();
    let text = std::fs::read_to_string(cluster.write_inventory(&laptop, &job)).expect("written");
    let config = laptop.write_file("own_config", &unauthorized_key_config(&cluster, &laptop));
    let text = text.replace(path_str(&cluster.client_file("ssh_config")), path_str(&config));
    let file = laptop.write_file("strange.yaml", &text);
    for words in [
        &["exec", path_str(&file), "--", "true"][..],
        &["plan", "--facts", path_str(&file)],
        &["up", path_str(&file)],
        &["down", path_str(&file)],
    ] {
        let ended = laptop.run(words);
        ended.assert_contains("3 hosts: key refused (tried ~/stranger)").assert_contains("gpu[01-03]");
        let output = ended.transcript();
        let line = "key refused (tried ~/stranger)";
        // `up` reports it at once and in its recap.
        let most = if words[0] == "up" || words[0] == "down" { 2 } else { 1 };
        assert!(output.matches(line).count() <= most, "{words:?}:\n{output}");
        eprintln!("{}: {}", words[0], output.lines().find(|l| l.contains(line)).unwrap_or_default());
    }
}

/// The hosts' addresses and keys, without an identity: the inventory names the only one.
fn unauthorized_key_config(cluster: &Cluster, laptop: &Laptop) -> String {
    let text = std::fs::read_to_string(cluster.client_file("ssh_config")).expect("written");
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("IdentityFile")).collect();
    format!("{}\n    IdentityFile {}\n", lines.join("\n"), path_str(&laptop.home().join("stranger")))
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn stalled_login_times_out_with_its_phase() {
    let cluster = Cluster::acquire();
    let listeners = AuthServers::start(&cluster, &["gpu02"], false);
    listeners
        .cluster
        .exec_on("gpu02", "printf 'auth required pam_exec.so quiet /bin/sleep 30\\naccount required pam_permit.so\\n' >/etc/pam.d/sshd");
    let person = Arc::new(ScriptedPrompt::with_answers(&[PASSWORD]));
    let mut host = listeners.host_with_identity("gpu02", PASSWORD_PORT, &[]);
    host.ssh.connect_timeout = Some(Duration::from_secs(3));
    let began = std::time::Instant::now();
    let results = connect_all(SshFleet::new(vec![host], listeners.client_settings(&person, None)), 1);
    assert_eq!(results, [Err("no answer during authentication within 3s".to_owned())]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    listeners.stop();
}

//! Every way to log in, against OpenSSH 9.2 (gpu01) and 10.0 (gpu02): the server's own log says what was used. Each test runs servers of its
//! own beside the hosts' one, with PAM, one port a way, and ends them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use orchestrate::inventory::{Gpus, Host, Ssh};
use orchestrate::remote::{Connect as _, Settings, SshFleet};
use sha1::Sha1;

use crate::laptop::{Laptop, until, word};
use crate::person::Person;
use crate::soft_agent::Token;
use crate::support::{Cluster, Job};

/// The user who has a password (`image/Dockerfile`).
const USER: &str = "pass";
const PASSWORD: &str = "open sesame";
/// Of RFC 6238's own example.
const SEED: &str = "3132333435363738393031323334353637383930";
const OLD_AND_NEW: [&str; 2] = ["gpu01", "gpu02"];

const KEYS: u16 = 2221;
const QUESTIONS: u16 = 2222;
const KEY_THEN_QUESTIONS: u16 = 2223;
const KEY_THEN_PASSWORD: u16 = 2224;
const PASSWORD_THEN_QUESTIONS: u16 = 2225;
const PASSWORDS: u16 = 2226;
const TWO_KEYS: u16 = 2227;

const PORTS: [(u16, &str); 7] = [
    (KEYS, "publickey"),
    (QUESTIONS, "keyboard-interactive"),
    (KEY_THEN_QUESTIONS, "publickey,keyboard-interactive"),
    (KEY_THEN_PASSWORD, "publickey,password"),
    (PASSWORD_THEN_QUESTIONS, "password,keyboard-interactive"),
    (PASSWORDS, "password"),
    (TWO_KEYS, "publickey,publickey"),
];

/// Servers on the hosts, and the client's files.
struct Doors<'a> {
    cluster: &'a Cluster,
    laptop: Laptop,
    hosts: &'static [&'static str],
}

impl<'a> Doors<'a> {
    /// Starts a server on each host. `codes`: the questions are a password and a code, else a password alone.
    fn open(cluster: &'a Cluster, hosts: &'static [&'static str], codes: bool) -> Self {
        let ports: String = PORTS.iter().map(|(port, _)| format!("Port {port}\n")).collect();
        let ways: String = PORTS.iter().map(|(port, way)| format!("Match LocalPort {port}\n AuthenticationMethods {way}\n")).collect();
        let oath = if codes { "auth required pam_oath.so usersfile=/etc/ssh/login/oath window=5 digits=6\n" } else { "" };
        for host in hosts {
            let said = cluster.on(
                host,
                &format!(
                    "find /usr/lib -name pam_oath.so | grep -q . || {{ echo old image; exit 0; }}\n\
                     {END}\nmkdir -p /etc/ssh/login && cp -p /etc/pam.d/sshd /etc/ssh/login/pam\n\
                     printf 'HOTP/T30/6 {USER} - {SEED}\\n' >/etc/ssh/login/oath && chmod 600 /etc/ssh/login/oath\n\
                     cat >/etc/pam.d/sshd <<'PAM'\nauth required pam_unix.so\n{oath}account required pam_permit.so\nsession required pam_permit.so\nPAM\n\
                     cat >/etc/ssh/login/config <<'SSHD'\n{ports}UsePAM yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication yes\n\
                     AuthorizedKeysFile /etc/ssh/login/keys\nStrictModes no\nPidFile /etc/ssh/login/pid\nLogLevel VERBOSE\nUseDNS no\n{ways}SSHD\n\
                     : >/etc/ssh/login/keys && /usr/sbin/sshd -f /etc/ssh/login/config -E /etc/ssh/login/log"
                ),
            );
            assert!(!said.contains("old image"), "{host} has no libpam-oath: run `tests/cluster/hosts up`");
            until("the server listens", || cluster.on(host, "cat /etc/ssh/login/log").contains("Server listening").then_some(()));
        }
        Doors { cluster, laptop: Laptop::new(), hosts }
    }

    fn keygen(&self, name: &str, kind: &str, passphrase: &str) -> String {
        let file = self.path(name);
        ssh_keygen(&["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", &file]);
        file
    }

    fn path(&self, name: &str) -> String {
        word(&self.laptop.home().join(name)).to_owned()
    }

    fn public(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.pub"))).expect("a public key")
    }

    /// Which keys open the doors.
    fn allow(&self, lines: &str) {
        for host in self.hosts {
            self.cluster.on(host, &format!("cat >/etc/ssh/login/keys <<'KEYS'\n{lines}\nKEYS"));
        }
    }

    fn host(&self, host: &str, port: u16, identity: &[&str]) -> Host {
        let address = self.cluster.on(host, "hostname -i").split_whitespace().next().expect("an address").to_owned();
        let ssh = Ssh {
            user: Some(USER.to_owned()),
            port: Some(port),
            identity: identity.iter().map(|i| (*i).to_owned()).collect(),
            known_hosts: Some(word(&self.cluster.file("known_hosts")).to_owned()),
            config: Some("./ssh_config".to_owned()),
            ..Ssh::default()
        };
        Host { name: host.to_owned(), address: Some(address), fabric_address: None, gpus: Gpus::Any, ssh }
    }

    fn settings(&self, person: &Arc<Person>, agent: Option<PathBuf>) -> Settings {
        self.laptop.write("ssh_config", "");
        Settings {
            home: self.laptop.home().to_owned(),
            base: self.laptop.home().to_owned(),
            config: None,
            agent,
            path: std::env::var_os("PATH"),
            user: "tester".to_owned(),
            prompt: person.clone(),
            parallel: 16,
            variables: Arc::new(|name| (name == "HOST_PASSWORD").then(|| PASSWORD.to_owned())),
        }
    }

    /// What the host's server writes while `work` is done.
    fn log<T>(&self, host: &str, work: impl FnOnce() -> T) -> (T, String) {
        let size = self.cluster.on(host, "wc -c </etc/ssh/login/log").trim().parse::<usize>().expect("a size");
        let done = work();
        (done, self.cluster.on(host, &format!("tail -c +{} /etc/ssh/login/log", size + 1)))
    }

    /// Logs in once; every one of `says` is in the server's log, in this order.
    #[track_caller]
    fn opens(&self, what: &str, host: Host, settings: Settings, says: &[&str]) {
        let name = host.name.clone();
        let (result, log) = self.log(&name, || connect(SshFleet::new(vec![host], settings), 1));
        assert_eq!(result, [Ok(())], "{what} on {name}:\n{log}");
        let mut rest = log.as_str();
        for line in says {
            let at = rest.find(line).unwrap_or_else(|| panic!("{what} on {name}: no `{line}` in\n{log}"));
            rest = &rest[at..];
        }
        let ways =
            log.lines().filter(|l| l.contains(&format!(" for {USER} from ")) && (l.starts_with("Accepted ") || l.starts_with("Partial ")));
        eprintln!("{name}: {what}: {}", ways.collect::<Vec<_>>().join("; "));
    }

    fn close(self) {
        for host in self.hosts {
            self.cluster.on(host, END);
        }
        self.cluster.as_before();
    }
}

/// Ends the server and puts everything back.
const END: &str = "if [ -e /etc/ssh/login ]; then\n kill $(cat /etc/ssh/login/pid) 2>/dev/null\n\
                   pkill -f '^sshd(-session)?: pass'; pkill -f '^/bin/sleep 30$'; cp -p /etc/ssh/login/pam /etc/pam.d/sshd; rm -rf /etc/ssh/login; fi; true";

/// Connects every host of a fleet at once and says goodbye; what went wrong in words.
fn connect(fleet: SshFleet, hosts: usize) -> Vec<Result<(), String>> {
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

fn ssh_keygen(words: &[&str]) {
    let out = Command::new("ssh-keygen").args(words).stdin(Stdio::null()).output().expect("ssh-keygen is there");
    assert!(out.status.success(), "ssh-keygen {words:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The code of RFC 6238 that is good now, or some steps later.
fn code(later: u64) -> String {
    let key: Vec<u8> = (0..SEED.len() / 2).map(|n| u8::from_str_radix(&SEED[2 * n..2 * n + 2], 16).expect("hex")).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let mut mac = Hmac::<Sha1>::new_from_slice(&key).expect("any length");
    mac.update(&(now / 30 + later).to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let at = usize::from(digest[19] & 15);
    let number = u32::from_be_bytes([digest[at] & 127, digest[at + 1], digest[at + 2], digest[at + 3]]);
    format!("{:06}", number % 1_000_000)
}

/// OpenSSH's agent with some keys.
struct Agent {
    pid: String,
    socket: PathBuf,
}

impl Agent {
    fn with(doors: &Doors<'_>, keys: &[&str]) -> Self {
        // An agent that is told to end removes its socket in its own time: the next one has another.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = doors.laptop.home().join(format!("agent-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let out = Command::new("ssh-agent").args(["-s", "-a", word(&socket)]).output().expect("ssh-agent is there");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let pid = said.split("SSH_AGENT_PID=").nth(1).and_then(|t| t.split(';').next()).expect("a pid").to_owned();
        for key in keys {
            let added = Command::new("ssh-add").args(["-q", &doors.path(key)]).env("SSH_AUTH_SOCK", &socket).stderr(Stdio::null()).status();
            assert!(added.expect("ssh-add is there").success(), "{key}");
        }
        Agent { pid, socket }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(Command::new("kill").arg(&self.pid).status());
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn keys_and_certificates_from_files_and_from_the_agent() {
    let cluster = Cluster::take();
    let doors = Doors::open(&cluster, &OLD_AND_NEW, false);
    let nobody = Arc::new(Person::silent());
    doors.keygen("ca", "ed25519", "");
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = doors.keygen(kind, kind, "");
        doors.keygen(&format!("vouched_{kind}"), kind, "");
        ssh_keygen(&["-q", "-s", &doors.path("ca"), "-I", "a-test", "-n", USER, &doors.path(&format!("vouched_{kind}.pub"))]);
        let (upper, host_key) = (kind.to_uppercase(), format!("{key}.pub"));
        let wanted = format!("Accepted publickey for {USER} from ");
        for host in OLD_AND_NEW {
            doors.allow(&doors.public(kind));
            doors.opens(
                &format!("{kind} key"),
                doors.host(host, KEYS, &[&key]),
                doors.settings(&nobody, None),
                &[&wanted, &format!("ssh2: {upper} ")],
            );
            let agent = Agent::with(&doors, &[kind]);
            let settings = doors.settings(&nobody, Some(agent.socket.clone()));
            doors.opens(
                &format!("{kind} key in the agent"),
                doors.host(host, KEYS, &[&host_key]),
                settings,
                &[&wanted, &format!("ssh2: {upper} ")],
            );

            doors.allow(&format!("cert-authority {}", doors.public("ca")));
            let says = [wanted.as_str(), &format!("ssh2: {upper}-CERT "), "ID a-test (serial 0) CA ED25519"];
            let vouched = doors.path(&format!("vouched_{kind}"));
            doors.opens(&format!("{kind} certificate"), doors.host(host, KEYS, &[&vouched]), doors.settings(&nobody, None), &says);
            let agent = Agent::with(&doors, &[&format!("vouched_{kind}")]);
            let settings = doors.settings(&nobody, Some(agent.socket.clone()));
            doors.opens(&format!("{kind} certificate in the agent"), doors.host(host, KEYS, &[]), settings, &says);
        }
    }
    doors.close();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_key_on_a_token_an_encrypted_key_and_two_keys() {
    let cluster = Cluster::take();
    let doors = Doors::open(&cluster, &OLD_AND_NEW, false);
    let token = Token::start(doors.laptop.home(), true);
    let locked = doors.keygen("locked", "ed25519", "geheim");
    let second = doors.keygen("second", "ecdsa", "");
    doors.allow(&[token.public.clone(), doors.public("locked"), doors.public("second")].concat());
    let wanted = format!("Accepted publickey for {USER} from ");
    let person = Arc::new(Person::saying(&["geheim"]));
    for host in OLD_AND_NEW {
        let settings = doors.settings(&person, Some(token.socket.clone()));
        doors.opens("FIDO key in the agent", doors.host(host, KEYS, &[]), settings, &[&wanted, "ssh2: ED25519-SK "]);
    }
    assert_eq!((person.was_asked(), token.asked.load(Ordering::SeqCst)), (Vec::new(), 2));
    let hosts: Vec<Host> = OLD_AND_NEW.iter().map(|h| doors.host(h, KEYS, &[&locked])).collect();
    assert_eq!(connect(SshFleet::new(hosts, doors.settings(&person, None)), 2), [Ok(()), Ok(())]);
    assert_eq!(person.was_asked(), ["passphrase of ~/locked"], "once for both hosts");
    for host in OLD_AND_NEW {
        let person = Arc::new(Person::saying(&["geheim"]));
        let says = [&format!("Partial publickey for {USER}"), wanted.as_str(), "ssh2: ED25519 "];
        doors.opens("two keys", doors.host(host, TWO_KEYS, &[&second, &locked]), doors.settings(&person, None), &says);
    }
    doors.close();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_password_is_asked_for_once_whichever_way_the_hosts_want_it() {
    let cluster = Cluster::take();
    let doors = Doors::open(&cluster, &OLD_AND_NEW, false);
    let key = doors.keygen("id", "ed25519", "");
    doors.allow(&doors.public("id"));
    let accepted = |way: &str| format!("Accepted {way} for {USER} from ");
    let partial = |way: &str| format!("Partial {way} for {USER} from ");
    let ways: [(u16, Vec<String>); 5] = [
        (PASSWORDS, vec![accepted("password")]),
        (QUESTIONS, vec![accepted("keyboard-interactive/pam")]),
        (KEY_THEN_PASSWORD, vec![partial("publickey"), accepted("password")]),
        (KEY_THEN_QUESTIONS, vec![partial("publickey"), accepted("keyboard-interactive/pam")]),
        (PASSWORD_THEN_QUESTIONS, vec![partial("password"), accepted("keyboard-interactive/pam")]),
    ];
    for (port, says) in &ways {
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        for host in OLD_AND_NEW {
            let nobody = Arc::new(Person::silent());
            let mut target = doors.host(host, *port, &[&key]);
            target.ssh.password = Some("HOST_PASSWORD".to_owned());
            doors.opens(&format!("port {port}"), target, doors.settings(&nobody, None), &says);
        }
    }
    // Both hosts, both ways, one question; then a slip of the hand, which costs no second connection.
    for answers in [&[PASSWORD][..], &["open barley", PASSWORD]] {
        let person = Arc::new(Person::saying(answers));
        let hosts = OLD_AND_NEW.iter().flat_map(|h| [doors.host(h, PASSWORDS, &[]), doors.host(h, QUESTIONS, &[])]).collect();
        let (results, log) = doors.log("gpu02", || connect(SshFleet::new(hosts, doors.settings(&person, None)), 4));
        assert_eq!(results, vec![Ok(()); 4], "{log}");
        assert_eq!(person.was_asked().len(), answers.len(), "{:?}", person.was_asked());
        assert_eq!(log.matches("Connection from").count(), 2, "{log}");
        assert_eq!(person.was_told().iter().any(|t| t.ends_with(": that was not accepted")), answers.len() > 1);
    }
    doors.close();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_password_and_a_code() {
    let cluster = Cluster::take();
    let doors = Doors::open(&cluster, &OLD_AND_NEW, true);
    let key = doors.keygen("id", "ed25519", "");
    doors.allow(&doors.public("id"));
    // Both hosts take the same code, each once.
    let person = Arc::new(Person::saying(&[PASSWORD, &code(0)]));
    let hosts = OLD_AND_NEW.iter().map(|h| doors.host(h, QUESTIONS, &[])).collect();
    let (results, log) = doors.log("gpu01", || connect(SshFleet::new(hosts, doors.settings(&person, None)), 2));
    assert_eq!(results, [Ok(()), Ok(())], "{log}");
    let asked = person.was_asked();
    assert!(asked.len() == 2 && asked[1].starts_with("One-time password (OATH) for `pass'"), "{asked:?}");
    assert!(log.contains(&format!("Accepted keyboard-interactive/pam for {USER}")), "{log}");
    // The same host under two names: it takes a code once, so the second is asked for on its own.
    let person = Arc::new(Person::saying(&[PASSWORD, &code(1), &code(2)]));
    let twice = vec![doors.host("gpu02", KEY_THEN_QUESTIONS, &[&key]); 2];
    let fleet = SshFleet::new(twice, doors.settings(&person, None));
    let (results, log) = doors.log("gpu02", || connect(fleet, 2));
    assert_eq!(results, [Ok(()), Ok(())], "{log}");
    assert_eq!(person.was_asked().len(), 3, "{:?}", person.was_asked());
    assert_eq!(log.matches(&format!("Partial publickey for {USER}")).count(), 2, "{log}");
    assert_eq!(log.matches(&format!("Accepted keyboard-interactive/pam for {USER}")).count(), 2, "{log}");
    assert_eq!(log.matches("Connection from").count(), 2, "{log}");
    doors.close();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn what_is_wrong_with_all_hosts_is_said_once() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    // A copy keeps its mode.
    std::fs::copy(cluster.file("id_stranger"), laptop.home().join("stranger")).expect("copied");
    let mut job = Job::quick("strange").hosts(&["gpu01", "gpu02", "gpu03"]);
    job.ssh = "identity: ./stranger".to_owned();
    let text = std::fs::read_to_string(cluster.inventory(&laptop, &job)).expect("written");
    let config = laptop.write("own_config", &own_config(&cluster, &laptop));
    let text = text.replace(word(&cluster.file("ssh_config")), word(&config));
    let file = laptop.write("strange.yaml", &text);
    for words in [&["exec", word(&file), "--", "true"][..], &["plan", "--facts", word(&file)], &["up", word(&file)], &["down", word(&file)]]
    {
        let ended = laptop.run(words);
        ended.says("3 hosts: key refused (tried ~/stranger)").says("gpu[01-03]");
        let said = ended.said();
        let line = "key refused (tried ~/stranger)";
        // `up` says it when it happens and in its recap.
        let most = if words[0] == "up" || words[0] == "down" { 2 } else { 1 };
        assert!(said.matches(line).count() <= most, "{words:?}:\n{said}");
        eprintln!("{}: {}", words[0], said.lines().find(|l| l.contains(line)).unwrap_or_default());
    }
    cluster.as_before();
}

/// The hosts' addresses and keys, with no identity: the inventory names the only one.
fn own_config(cluster: &Cluster, laptop: &Laptop) -> String {
    let text = std::fs::read_to_string(cluster.file("ssh_config")).expect("written");
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("IdentityFile")).collect();
    format!("{}\n    IdentityFile {}\n", lines.join("\n"), word(&laptop.home().join("stranger")))
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_server_that_stops_in_the_midst_of_a_login_is_named_in_time() {
    let cluster = Cluster::take();
    let doors = Doors::open(&cluster, &["gpu02"], false);
    doors
        .cluster
        .on("gpu02", "printf 'auth required pam_exec.so quiet /bin/sleep 30\\naccount required pam_permit.so\\n' >/etc/pam.d/sshd");
    let person = Arc::new(Person::saying(&[PASSWORD]));
    let mut host = doors.host("gpu02", PASSWORDS, &[]);
    host.ssh.connect_timeout = Some(Duration::from_secs(3));
    let began = std::time::Instant::now();
    let results = connect(SshFleet::new(vec![host], doors.settings(&person, None)), 1);
    assert_eq!(results, [Err("no answer during authentication within 3s".to_owned())]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    doors.close();
}

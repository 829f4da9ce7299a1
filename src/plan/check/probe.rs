//! The questions that checks need answered, and the scripts that ask them. All questions about one host that need no other host travel in one
//! script and are asked side by side.
//!
//! Uses `shell`, sites and jobs. The sh text is in `assets/check/`.

use std::time::Duration;

use crate::inventory::{Container, Job};
use crate::plan::action::{container, memlock};
use crate::plan::facts::HostFacts;
use crate::plan::launcher;
use crate::plan::logind::SystemdScope;
use crate::plan::site::Site;
use crate::shell::{Command, join, quote};

/// How long a listener of ours listens at most.
pub const LISTEN: Duration = Duration::from_secs(30);
/// How long a connection may take before the way counts as blocked.
pub const REACH: Duration = Duration::from_secs(3);

/// The questions about one host that need no other; they travel in one script.
pub const ALONE: [Probe; 4] = [Probe::Host, Probe::Gpus, Probe::Docker, Probe::Files];

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// Several exchanges with the host's clock.
    Clock,
    /// The machine.
    Host,
    /// The GPUs.
    Gpus,
    /// Docker's daemon.
    Docker,
    /// Mounts and paths.
    Files,
    /// Names and routes; needs the addresses of all hosts.
    Net,
    /// Connections between the hosts.
    Reach,
    /// The place where the ranks will run: a container of the very image, or the bare host.
    Inside,
}

impl Probe {
    /// The word at the end of its answer.
    pub fn word(self) -> &'static str {
        match self {
            Probe::Clock => "clock",
            Probe::Host => "host",
            Probe::Gpus => "gpus",
            Probe::Docker => "docker",
            Probe::Files => "files",
            Probe::Net => "net",
            Probe::Reach => "reach",
            Probe::Inside => "inside",
        }
    }
}

/// What is looked for on a host besides its facts: the mounts of its container, then `checks.paths`. The order gives the answers their numbers.
pub fn files(job: &Job, host: usize) -> Vec<(bool, String)> {
    let mounts = job.hosts.get(host).and_then(|h| h.container.as_ref()).map_or(&[][..], |c| c.mounts.as_slice());
    let mounts = mounts.iter().map(|m| (m.read_only, m.from.clone()));
    mounts.chain(job.checks.paths.iter().map(|path| (true, path.clone()))).collect()
}

/// Where ranks write: the mounts that are not read-only, or the working directory.
pub fn writes(job: &Job, host: usize) -> Vec<String> {
    match job.hosts.get(host).and_then(|h| h.container.as_ref()) {
        Some(container) => container.mounts.iter().filter(|m| !m.read_only).map(|m| m.to.clone()).collect(),
        None => Vec::new(),
    }
}

/// The script that asks a host whatever can be asked without knowing the others; `None`: nothing is to be asked.
pub fn alone(site: &Site, job: &Job, host: usize, probes: &[Probe]) -> Option<Command> {
    let mut body = String::new();
    for probe in probes {
        let (set, text) = match probe {
            Probe::Host => {
                let outputs = files(job, host).into_iter().filter(|(read_only, _)| !read_only).map(|(_, path)| path);
                let disks: Vec<String> = std::iter::once(site.base.clone()).chain(outputs).collect();
                (format!("disks={}\n", quote(&join(&disks))), include_str!("../../../assets/check/host.sh"))
            }
            Probe::Gpus => (String::new(), include_str!("../../../assets/check/gpus.sh")),
            Probe::Docker if site.contained => (format!("D={}\n", quote(&site.docker())), include_str!("../../../assets/check/docker.sh")),
            Probe::Files => {
                let words: Vec<String> =
                    files(job, host).into_iter().flat_map(|(list, path)| [if list { "list" } else { "look" }.to_owned(), path]).collect();
                (format!("files={}\n", quote(&join(&words))), include_str!("../../../assets/check/files.sh"))
            }
            Probe::Docker | Probe::Clock | Probe::Net | Probe::Reach | Probe::Inside => continue,
        };
        body.push_str(&format!("(\n{set}{text}) &\n"));
    }
    (!body.is_empty()).then(|| command("look at the host", site, &format!("{body}wait\n"), Duration::from_secs(60)))
}

fn command(title: &str, site: &Site, body: &str, timeout: Duration) -> Command {
    let script = format!("{}{}{body}", site.preamble(), include_str!("../../../assets/check/lib.sh"));
    Command::sh(title, script, timeout).keeping(1 << 20)
}

/// A script with the names of the files in it instead of what they say.
pub fn brief(script: &str) -> String {
    const FILES: [(&str, &str); 10] = [
        ("lib.sh", include_str!("../../../assets/lib.sh")),
        ("facts.sh", include_str!("../../../assets/facts.sh")),
        ("check/lib.sh", include_str!("../../../assets/check/lib.sh")),
        ("check/host.sh", include_str!("../../../assets/check/host.sh")),
        ("check/gpus.sh", include_str!("../../../assets/check/gpus.sh")),
        ("check/docker.sh", include_str!("../../../assets/check/docker.sh")),
        ("check/files.sh", include_str!("../../../assets/check/files.sh")),
        ("check/net.sh", include_str!("../../../assets/check/net.sh")),
        ("check/listen.py", include_str!("../../../assets/check/listen.py")),
        ("check/listen.pl", include_str!("../../../assets/check/listen.pl")),
    ];
    FILES.iter().fold(script.to_owned(), |text, (name, body)| {
        text.replace(&quote(body), &format!("\"$(cat assets/{name})\"")).replace(body, &format!("# (assets/{name})\n"))
    })
}

/// The script that asks a host how it sees the others.
pub fn net(site: &Site, names: &[String], peers: &[String]) -> Command {
    let set = format!("names={}\npeers={}\n", quote(&names.join(" ")), quote(&peers.join(" ")));
    command("look at the network", site, &format!("{set}{}", include_str!("../../../assets/check/net.sh")), Duration::from_secs(30))
}

/// The stream that listens on a port of the kernel's choice, and on `given` where it is not 0, until its input ends.
pub fn listen(site: &Site, six: bool, given: u16) -> Command {
    let words = format!("{} {} {given}", LISTEN.as_secs(), if six { 6 } else { 4 });
    let body = format!(
        "if has python3; then exec python3 -c {} {words}\nelif has perl; then exec perl -e {} {words}\n\
         else printf 'cannot both there is neither python3 nor perl to listen with\\nready\\n'; fi\n",
        quote(include_str!("../../../assets/check/listen.py")),
        quote(include_str!("../../../assets/check/listen.pl")),
    );
    command("listen", site, &body, Duration::from_secs(10))
}

/// The script that tries connections, where sshd does not: (label, address, port).
pub fn reach(site: &Site, targets: &[(String, String, u16)]) -> Command {
    let words: Vec<String> = targets.iter().map(|(label, address, port)| format!("{label},{address},{port}")).collect();
    let set = format!("targets={}\nseconds={}\n", quote(&words.join(" ")), REACH.as_secs());
    command("try the ways", site, &format!("{set}{}", include_str!("../../../assets/check/reach.sh")), REACH * 2 + Duration::from_secs(5))
}

/// The stream that answers each line of its input with the host's time.
pub fn clock(site: &Site) -> Command {
    // busybox: date has no %N there, its shell may have EPOCHREALTIME.
    let body = "while read -r _; do\nt=$(date +%s.%N)\ncase $t in *N* | *.) t=${EPOCHREALTIME:-$(date +%s)} ;; esac\nprintf '%s\\n' \"$t\"\ndone\n";
    Command::sh("compare the clocks", format!("{}{body}", site.preamble()), Duration::from_secs(10))
}

/// The script that looks from where the ranks will run: a container of the image that is removed at once, or the host itself. `nonce` names
/// the container.
pub fn inside(site: &Site, job: &Job, host: usize, facts: &HostFacts, flag: Option<String>, nonce: &str) -> Command {
    let part = job.hosts.get(host);
    let spec = part.and_then(|p| p.container.as_ref());
    let asked = format!(
        "python={}\ngpus={}\nwrites={}\nsame={}\n",
        quote(&job.launch.python),
        if flag.is_some() { "1" } else { "''" },
        quote(&join(&writes(job, host))),
        quote(&join(&job.checks.same)),
    );
    let within = format!("{}{asked}{}", include_str!("../../../assets/check/lib.sh"), include_str!("../../../assets/check/inside.sh"));
    let Some(spec) = spec else {
        let setup = job.launch.setup.as_deref().unwrap_or_default();
        let dir = part.and_then(|p| p.workdir.as_deref()).map(|dir| launcher::at_home(dir, Some(facts)));
        let cd = dir.map_or_else(String::new, |dir| format!("cd {} 2>/dev/null\n", quote(&dir)));
        let shell = if setup.is_empty() { format!("{cd}{within}") } else { bash(&format!("{cd}{setup}\n"), &within) };
        return command("look from inside", site, &shell, Duration::from_secs(120));
    };
    let name = format!("orch-check-{}-{}-{nonce}", site.name, site.host.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let mut flags = container::without_memlock(flags(site, spec, facts, &name));
    flags.extend(flag.map(|flag| format!("--gpus={flag}")));
    let dir = part.and_then(|p| p.workdir.as_deref());
    flags.extend(dir.map(|dir| format!("--workdir={dir}")));
    // What the launch would make is not there yet.
    let made = |m: &crate::inventory::Mount| {
        let from = quote(&launcher::at_home(&m.from, Some(facts)));
        let mount = format!("--mount=type=bind,source={},target={}", launcher::at_home(&m.from, Some(facts)), m.to);
        format!("[ -e {from} ] && set -- \"$@\" {}\n", quote(&mount))
    };
    let created: String = spec.mounts.iter().filter(|m| m.create && !m.read_only).map(made).collect();
    let body = format!(
        "trap 'D rm -f {name} >/dev/null 2>&1' EXIT; trap 'exit 1' HUP INT TERM\n\
         ib=; [ -d /dev/infiniband ] && ib=--device=/dev/infiniband\n\
         set --\n{created}\
         start() {{ D run $lock {} $ib \"$@\" {} --entrypoint=/bin/sh {} -c {} >&4; }}\n\
         drop() {{ D rm -f {name} >/dev/null 2>&1; }}\n\
         {attempt}attempt \"$@\"\n[ -z \"$says\" ] || printf '%s\\n' \"$says\" >&2\n[ $rc -eq 0 ] || {{ say inside_failed \"$rc\"; say did inside; }}\n",
        join(&flags),
        join(&spec.args),
        quote(&spec.image),
        quote(&within),
        attempt = memlock::ATTEMPT,
    );
    command("look into the image", site, &body, Duration::from_secs(180))
}

/// Lines that only bash understands, before the questions.
fn bash(setup: &str, within: &str) -> String {
    format!("bash -c {}\n", quote(&format!("{{ {setup}}} >/dev/null 2>&1\n{within}")))
}

fn flags(site: &Site, spec: &Container, facts: &HostFacts, name: &str) -> Vec<String> {
    let made = container::Container {
        site: site.clone(),
        spec: Some(spec.clone()),
        hash: String::new(),
        owner: String::new(),
        stop_grace: 0,
        gpus: None,
        me: format!("{}:{}", facts.uid, facts.gid),
        home: facts.home.clone(),
        recreate: false,
        checks: false,
        scope: SystemdScope::Inherited,
    };
    let ours = |flag: &String| {
        ["--name=", "--label=", "--stop-timeout=", "--log-", "--restart="].iter().any(|f| flag.starts_with(f))
            || [site.in_dir(), site.out_dir()].iter().any(|dir| flag.contains(&format!("target={dir}")))
            || spec.mounts.iter().any(|m| m.create && flag.ends_with(&format!(",target={}", m.to)))
            || spec.args.contains(flag)
    };
    let mut flags: Vec<String> = made.flags(spec).into_iter().filter(|flag| !ours(flag)).collect();
    // With the labels of all that is ours: a check that was killed leaves it.
    flags.splice(
        0..0,
        [format!("--name={name}"), "--rm".to_owned(), "--label=orchestrate.check=1".to_owned()].into_iter().chain(site.labels()),
    );
    flags
}

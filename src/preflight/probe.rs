//! The questions that checks need answered, and the scripts that ask them. All questions about one host that need no other host travel in one
//! script and are asked side by side.
//!
//! The sh text is in `assets/check/`.

use std::time::Duration;

use crate::inventory::{ContainerSettings, Job};
use crate::model::remote_command::RemoteCommand;
use crate::plan::action::container::StartContainer;
use crate::plan::action::memlock;
use crate::plan::action::reach_master::CONNECT_TIMEOUT;
use crate::plan::fact_rules::user_ids;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::launcher;
use crate::text::shell_quote::{join_quoted, quote};

/// How long a listener of ours listens at most.
pub(crate) const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The questions about one host that need no other; they travel in one script.
pub(crate) const INDEPENDENT_PROBES: [Probe; 4] = [Probe::Host, Probe::Gpus, Probe::Docker, Probe::Files];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Probe {
    /// Several exchanges with the host's clock.
    Clock,
    Host,
    Gpus,
    Docker,
    Files,
    /// Names and routes; needs the addresses of all hosts.
    Network,
    /// Connections between the hosts.
    Connectivity,
    /// The place where the ranks will run: a container of the very image, or the bare host.
    Environment,
}

impl Probe {
    /// The word at the end of its answer.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Probe::Clock => "clock",
            Probe::Host => "host",
            Probe::Gpus => "gpus",
            Probe::Docker => "docker",
            Probe::Files => "files",
            Probe::Network => "net",
            Probe::Connectivity => "reach",
            Probe::Environment => "inside",
        }
    }
}

/// What is looked for on a host besides its facts: the mounts of its container, then `checks.paths`. The order gives the answers their numbers.
pub(crate) fn checked_paths(job: &Job, host: usize) -> Vec<(bool, String)> {
    let mounts = job.hosts.get(host).and_then(|h| h.container.as_ref()).map_or(&[][..], |c| c.mounts.as_slice());
    let mounts = mounts.iter().map(|m| (m.read_only, m.source.clone()));
    mounts.chain(job.checks.same_content_paths.iter().map(|path| (true, path.clone()))).collect()
}

/// Where ranks in a container write: the mounts that are not read-only.
pub(crate) fn writable_mounts(job: &Job, host: usize) -> Vec<String> {
    match job.hosts.get(host).and_then(|h| h.container.as_ref()) {
        Some(container) => container.mounts.iter().filter(|m| !m.read_only).map(|m| m.target.clone()).collect(),
        None => Vec::new(),
    }
}

/// The script of all probes that do not depend on other hosts; `None`: there are none.
pub(crate) fn host_probe_command(context: &HostContext, job: &Job, host: usize, probes: &[Probe]) -> Option<RemoteCommand> {
    let mut body = String::new();
    for probe in probes {
        let (set, text) = match probe {
            Probe::Host => {
                let outputs = checked_paths(job, host).into_iter().filter(|(read_only, _)| !read_only).map(|(_, path)| path);
                let disks: Vec<String> = std::iter::once(context.run_dir_root.clone()).chain(outputs).collect();
                (format!("disks={}\n", quote(&join_quoted(&disks))), include_str!("../../assets/check/host.sh"))
            }
            Probe::Gpus => (String::new(), include_str!("../../assets/check/gpus.sh")),
            Probe::Docker if context.in_container => {
                (format!("D={}\n", quote(&context.docker_command())), include_str!("../../assets/check/docker.sh"))
            }
            Probe::Files => {
                let words: Vec<String> = checked_paths(job, host)
                    .into_iter()
                    .flat_map(|(list, path)| [if list { "list" } else { "look" }.to_owned(), path])
                    .collect();
                (format!("files={}\n", quote(&join_quoted(&words))), include_str!("../../assets/check/files.sh"))
            }
            Probe::Docker | Probe::Clock | Probe::Network | Probe::Connectivity | Probe::Environment => continue,
        };
        body.push_str(&format!("(\n{set}{text}) &\n"));
    }
    (!body.is_empty()).then(|| probe_command("probe the host", context, &format!("{body}wait\n"), Duration::from_secs(60)))
}

fn probe_command(title: &str, context: &HostContext, body: &str, timeout: Duration) -> RemoteCommand {
    let script = format!("{}{}{body}", context.script_preamble(), include_str!("../../assets/check/lib.sh"));
    RemoteCommand::from_script(title, script, timeout).with_output_limit(1 << 20)
}

/// A script with the names of its files instead of their contents.
pub(crate) fn abbreviate_script(script: &str) -> String {
    const FILES: [(&str, &str); 12] = [
        ("lib.sh", include_str!("../../assets/lib.sh")),
        ("facts.sh", include_str!("../../assets/facts.sh")),
        ("check/lib.sh", include_str!("../../assets/check/lib.sh")),
        ("check/host.sh", include_str!("../../assets/check/host.sh")),
        ("check/gpus.sh", include_str!("../../assets/check/gpus.sh")),
        ("check/docker.sh", include_str!("../../assets/check/docker.sh")),
        ("check/files.sh", include_str!("../../assets/check/files.sh")),
        ("check/inside.sh", include_str!("../../assets/check/inside.sh")),
        ("check/net.sh", include_str!("../../assets/check/net.sh")),
        ("check/reach.sh", include_str!("../../assets/check/reach.sh")),
        ("check/listen.py", include_str!("../../assets/check/listen.py")),
        ("check/listen.pl", include_str!("../../assets/check/listen.pl")),
    ];
    FILES.iter().fold(script.to_owned(), |text, (name, body)| {
        text.replace(&quote(body), &format!("\"$(cat assets/{name})\"")).replace(body, &format!("# (assets/{name})\n"))
    })
}

/// The script that asks a host how it sees the others.
pub(crate) fn network_probe_command(context: &HostContext, names: &[String], peers: &[String]) -> RemoteCommand {
    let set = format!("names={}\npeers={}\n", quote(&names.join(" ")), quote(&peers.join(" ")));
    probe_command("probe the network", context, &format!("{set}{}", include_str!("../../assets/check/net.sh")), Duration::from_secs(30))
}

/// The stream that listens on a port of the kernel's choice, and on `given` where it is not 0, until its input ends.
pub(crate) fn listener_command(context: &HostContext, six: bool, given: u16) -> RemoteCommand {
    let words = format!("{} {} {given}", LISTEN_TIMEOUT.as_secs(), if six { 6 } else { 4 });
    let body = format!(
        "if has python3; then exec python3 -c {} {words}\nelif has perl; then exec perl -e {} {words}\n\
         else printf 'cannot both there is neither python3 nor perl to listen with\\nready\\n'; fi\n",
        quote(include_str!("../../assets/check/listen.py")),
        quote(include_str!("../../assets/check/listen.pl")),
    );
    probe_command("listen", context, &body, Duration::from_secs(30))
}

/// The script that tries connections, where sshd does not: (label, address, port).
pub(crate) fn connectivity_probe_command(context: &HostContext, targets: &[(String, String, u16)]) -> RemoteCommand {
    let words: Vec<String> = targets.iter().map(|(label, address, port)| format!("{label},{address},{port}")).collect();
    let set = format!("targets={}\nseconds={}\n", quote(&words.join(" ")), CONNECT_TIMEOUT.as_secs());
    probe_command(
        "try connections between hosts",
        context,
        &format!("{set}{}", include_str!("../../assets/check/reach.sh")),
        CONNECT_TIMEOUT * 2 + Duration::from_secs(5),
    )
}

/// The stream that answers each line of its input with the host's time.
pub(crate) fn clock_probe_command(context: &HostContext) -> RemoteCommand {
    // busybox: date has no %N there, its shell may have EPOCHREALTIME.
    let body = "while read -r _; do\nt=$(date +%s.%N)\ncase $t in *N* | *.) t=${EPOCHREALTIME:-$(date +%s)} ;; esac\nprintf '%s\\n' \"$t\"\ndone\n";
    RemoteCommand::from_script("compare the clocks", format!("{}{body}", context.script_preamble()), Duration::from_secs(10))
}

/// What looks from where a host's ranks will run.
#[derive(Clone, Copy)]
pub(crate) struct EnvironmentProbe<'a> {
    pub context: &'a HostContext,
    /// What it is to do.
    pub job: &'a Job,
    pub host: usize,
    pub facts: &'a HostFacts,
    /// The value of `--gpus`.
    pub gpus_flag: Option<&'a str>,
    pub nonce: &'a str,
}

/// The script that looks from where the ranks will run: a container of the image that is removed at once, or the host itself.
pub(crate) fn environment_probe_command(asked: &EnvironmentProbe<'_>) -> RemoteCommand {
    let EnvironmentProbe { context: host_context, job, host, facts, gpus_flag: flag, nonce } = *asked;
    let part = job.hosts.get(host);
    let spec = part.and_then(|p| p.container.as_ref());
    let asked = format!(
        "python={}\ngpus={}\nwrites={}\nsame={}\n",
        quote(&job.launch.python),
        if flag.is_some() { "1" } else { "''" },
        quote(&join_quoted(&writable_mounts(job, host))),
        quote(&join_quoted(&job.checks.same_output_commands)),
    );
    let within = format!("{}{asked}{}", include_str!("../../assets/check/lib.sh"), include_str!("../../assets/check/inside.sh"));
    let Some(spec) = spec else {
        let setup = job.launch.setup.as_deref().unwrap_or_default();
        let dir = part.and_then(|p| p.workdir.as_deref()).map(|dir| launcher::expand_home(dir, &facts.home));
        let cd = dir.map_or_else(String::new, |dir| format!("cd {} 2>/dev/null\n", quote(&dir)));
        let shell = if setup.is_empty() { format!("{cd}{within}") } else { wrap_in_bash(&format!("{cd}{setup}\n"), &within) };
        return probe_command("check the ranks' environment", host_context, &shell, Duration::from_secs(120));
    };
    let name = format!("orch-check-{}-{}-{nonce}", host_context.name, host_context.host.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let mut flags = probe_container_flags(host_context, spec, facts, &name);
    flags.extend(flag.map(|flag| format!("--gpus={flag}")));
    let dir = part.and_then(|p| p.workdir.as_deref());
    flags.extend(dir.map(|dir| format!("--workdir={dir}")));
    // What the launch would make is not there yet.
    let made = |m: &crate::inventory::Mount| {
        let from = quote(&launcher::expand_home(&m.source, &facts.home));
        let mount = format!("--mount=type=bind,source={},target={}", launcher::expand_home(&m.source, &facts.home), m.target);
        format!("[ -e {from} ] && set -- \"$@\" {}\n", quote(&mount))
    };
    let created: String = spec.mounts.iter().filter(|m| m.create_source && !m.read_only).map(made).collect();
    let body = format!(
        "trap 'D rm -f {name} >/dev/null 2>&1' EXIT; trap 'exit 1' HUP INT TERM\n\
         ib=; [ -d /dev/infiniband ] && ib=--device=/dev/infiniband\n\
         set --\n{created}\
         start() {{ D run $lock {} $ib \"$@\" {} --entrypoint=/bin/sh {} -c {} >&4; }}\n\
         drop() {{ D rm -f {name} >/dev/null 2>&1; }}\n\
         {attempt}attempt \"$@\"\n[ -z \"$says\" ] || printf '%s\\n' \"$says\" >&2\n[ $rc -eq 0 ] || {{ emit inside_failed \"$rc\"; emit did inside; }}\n",
        join_quoted(&flags),
        join_quoted(&spec.docker_args),
        quote(&spec.image),
        quote(&within),
        attempt = memlock::START_WITH_MEMLOCK_SH,
    );
    probe_command("inspect the image", host_context, &body, Duration::from_secs(180))
}

/// Lines that only bash understands, before the questions.
fn wrap_in_bash(setup: &str, within: &str) -> String {
    format!("bash -c {}\n", quote(&format!("{{ {setup}}} >/dev/null 2>&1\n{within}")))
}

fn probe_container_flags(context: &HostContext, spec: &ContainerSettings, facts: &HostFacts, name: &str) -> Vec<String> {
    let made = StartContainer {
        context: context.clone(),
        user_ids: user_ids(facts, &context.host),
        home: facts.home.clone(),
        ..StartContainer::default()
    };
    let ours = |flag: &String| {
        ["--name=", "--label=", "--stop-timeout=", "--log-", "--restart="].iter().any(|f| flag.starts_with(f))
            || [context.input_dir(), context.output_dir()].iter().any(|dir| flag.contains(&format!("target={dir}")))
            || spec.mounts.iter().any(|m| m.create_source && flag.ends_with(&format!(",target={}", m.target)))
    };
    let mut flags: Vec<String> = made.docker_flags(spec).into_iter().filter(|flag| !ours(flag)).collect();
    // With the labels of all that is ours: a check that was killed leaves it.
    flags.splice(
        0..0,
        [format!("--name={name}"), "--rm".to_owned(), "--label=orchestrate.check=1".to_owned()].into_iter().chain(context.label_flags()),
    );
    flags
}

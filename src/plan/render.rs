//! The launch as scripts that a person can run by hand, without `orchestrate` on any side: what the guides print, for one job.
//!
//! Uses `shell` and the plan. No wrappers and no run directory: the launcher in the foreground, its output on the terminal. A script is read
//! whole before any of it runs, and nothing in it reads its input, so `ssh HOST sh <HOST.sh` works.

use crate::inventory::{Entrypoint, Job, Mount, Pull};
use crate::plan::Plan;
use crate::plan::action::{Action, container, memlock};
use crate::plan::launcher::{ByHand, Start};
use crate::shell::quote;

/// Names of the run that a script by hand has no use for.
const OURS: [&str; 3] = ["ORCH_RUN_DIR", "ORCH_WORKDIR", "ORCH_HOSTFILE"];

/// A script for each host, in node-rank order. `ssh`: the words that reach a host by ssh.
pub fn scripts(plan: &Plan, job: &Job, ssh: &dyn Fn(&str) -> String) -> Vec<(String, String)> {
    let all = plan.sites.iter().enumerate().filter_map(|(host, site)| {
        let of = |wanted: usize| plan.steps.iter().filter(move |step| step.host == wanted).map(|step| &step.action);
        let start = of(host).find_map(|action| match action {
            Action::Prepare(prepare) => Some(&prepare.start),
            _ => None,
        })?;
        let container = of(host).find_map(|action| match action {
            Action::Container(container) => Some(container),
            _ => None,
        })?;
        Some((site.host.clone(), Script { plan, job, host, start, container }.text(&ssh(&site.host))))
    });
    all.collect()
}

/// What stands in the scripts for what only the hosts know.
pub fn open(scripts: &[(String, String)]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, text) in scripts {
        let mut rest = text.as_str();
        while let Some((_, tail)) = rest.split_once("<from ") {
            let (what, _) = tail.split_once('>').unwrap_or((tail, ""));
            let what = what.lines().next().unwrap_or_default().to_owned();
            if !found.contains(&what) {
                found.push(what);
            }
            rest = tail;
        }
    }
    found
}

struct Script<'a> {
    plan: &'a Plan,
    job: &'a Job,
    host: usize,
    start: &'a Start,
    container: &'a container::Container,
}

/// A path of the host; `~/` is the home of whoever runs the script.
fn host_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quote(rest)),
        None if path == "~" => "\"$HOME\"".to_owned(),
        None => quote(path),
    }
}

/// A command with its flags one a line.
fn lines(words: &[String], indent: &str) -> String {
    let mut text = String::new();
    let mut words = words.iter();
    if let Some(first) = words.next() {
        text.push_str(&quote(first));
    }
    for word in words {
        let flag = word.starts_with("--") && !word.contains(char::is_whitespace);
        text.push_str(&if flag { format!(" \\\n{indent}  ") } else { " ".to_owned() });
        text.push_str(&quote(word));
    }
    text
}

impl Script<'_> {
    fn name(&self) -> &str {
        self.plan.sites.get(self.host).map_or("", |site| site.name.as_str())
    }

    fn text(&self, ssh: &str) -> String {
        let hosts = self.plan.sites.len();
        let own = self.plan.sites.get(self.host).map_or("", |site| site.host.as_str());
        let master = self.plan.sites.first().map_or("", |site| site.host.as_str());
        let first = if self.host == 0 { "the master: begin with it" } else { "begin with the master" };
        let mut text = format!(
            "#!/bin/sh\n# {} on {own}: node rank {} of {hosts}; {first}{}.\n# By hand: ssh {ssh} sh <{own}.sh\n# shellcheck disable=SC2016\nset -eu\n\nmain() {{\n",
            self.name(),
            self.host,
            if self.host == 0 { String::new() } else { format!(", {master}") },
        );
        for secret in &self.job.secrets {
            text.push_str(&format!(": \"${{{secret}:?a secret of this job: export it before}}\"\n"));
        }
        text.push_str(&if self.container.spec.is_some() { self.docker() } else { self.bare() });
        text.push_str("}\n\nmain </dev/null\n");
        text
    }

    fn variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.start.env.iter().filter(|(name, _)| !OURS.contains(&name.as_str()))
    }

    /// What runs where the ranks are.
    fn inner(&self) -> String {
        let mut text = String::new();
        let hostfile = format!("/tmp/{}.hostfile", self.name());
        if let Some(hosts) = self.start.files.get("hostfile") {
            text.push_str(&format!("cat >{hostfile} <<'HOSTS'\n{hosts}HOSTS\nexport ORCH_HOSTFILE={hostfile}\n"));
        }
        for (name, value) in &self.start.defaults {
            text.push_str(&format!("[ -n \"${{{name}+set}}\" ] || export {name}={}\n", quote(value)));
        }
        let setup = self.start.files.get("setup").map(String::as_str).unwrap_or_default();
        match &self.start.by_hand {
            ByHand::Command(words) => text.push_str(&format!("{setup}exec {}\n", lines(words, ""))),
            ByHand::Each(words, each) => {
                text.push_str("pids='' status=0\n");
                for own in each {
                    let own: Vec<String> = own.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
                    text.push_str(&format!("(\nexport {}\n{setup}exec {}\n) &\npids=\"$pids $!\"\n", own.join(" "), lines(words, "")));
                }
                text.push_str("for pid in $pids; do wait \"$pid\" || status=$?; done\nexit \"$status\"\n");
            }
        }
        text
    }

    /// The shell that `launch.setup` is written for.
    fn shell(&self) -> &'static str {
        if self.start.files.contains_key("setup") { "bash" } else { "sh" }
    }

    fn bare(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.variables() {
            text.push_str(&format!("export {name}={}\n", quote(value)));
        }
        if let Some(dir) = self.start.env.get("ORCH_WORKDIR").filter(|dir| !dir.is_empty()) {
            text.push_str(&format!("cd {}\n", host_path(dir)));
        }
        text.push_str(&format!("exec {} -c {}\n", self.shell(), quote(&self.inner())));
        text
    }

    fn docker(&self) -> String {
        let Some(spec) = &self.container.spec else { return String::new() };
        let image = quote(&spec.image);
        let mut text = String::new();
        for Mount { from, .. } in spec.mounts.iter().filter(|m| m.create) {
            text.push_str(&format!("mkdir -p {}\n", host_path(from)));
        }
        let inspect = format!("docker image inspect {image} >/dev/null 2>&1");
        text.push_str(&match spec.pull {
            Pull::Missing => format!("{inspect} || docker pull {image}\n"),
            Pull::Always => format!("docker pull {image}\n"),
            Pull::Never => format!("{inspect} || {{ echo 'the image is not here, and container.pull is never' >&2; exit 1; }}\n"),
        });
        text.push_str("ib=''\n");
        text.push_str("if [ -d /dev/infiniband ]; then ib=--device=/dev/infiniband; fi\n");
        // Rootless docker, and one without CAP_SYS_RESOURCE, starts no container that may lock memory without a limit.
        let unlimited = memlock::UNLIMITED;
        text.push_str(&format!(
            "lock={unlimited}\ncase $(docker run --rm --network=none \"$lock\" --entrypoint=/bin/sh {image} -c : </dev/null 2>&1) in *rlimit*) lock='' ;; esac\n"
        ));
        let mut flags: Vec<String> = vec!["--rm".to_owned(), format!("--name={}", quote(&self.container.site.container()))];
        let ours = ["--name=", "--label=", "--restart=", "--log-", "--mount=", "--env=", "--stop-timeout="];
        let rest = self.container.flags(spec);
        let theirs = |flag: &&String| *flag != unlimited && !ours.iter().any(|own| flag.starts_with(own));
        flags.extend(rest.iter().filter(theirs).map(|flag| quote(flag)));
        for Mount { from, to, read_only, .. } in &spec.mounts {
            let end = if *read_only { ",readonly" } else { "" };
            flags.push(format!("--mount=type=bind,source={},target={}{end}", host_path(from), quote(to)));
        }
        let common = spec.env.iter().filter(|(name, _)| !self.start.env.contains_key(*name));
        flags.extend(common.chain(self.variables()).map(|(name, value)| quote(&format!("--env={name}={value}"))));
        flags.extend(self.job.secrets.iter().map(|name| format!("--env={name}")));
        if let Some(dir) = self.start.env.get("ORCH_WORKDIR").filter(|dir| !dir.is_empty()) {
            flags.push(quote(&format!("--workdir={dir}")));
        }
        let shell = self.shell();
        let tail = match spec.entrypoint {
            Entrypoint::None => format!("--entrypoint={shell} {image} -c"),
            Entrypoint::Image => format!("{image} {shell} -c"),
        };
        text.push_str(&format!(
            "exec docker run ${{ib:+\"$ib\"}} ${{lock:+\"$lock\"}} \\\n  {} \\\n  {tail} {}\n",
            flags.join(" \\\n  "),
            quote(&self.inner())
        ));
        text
    }
}

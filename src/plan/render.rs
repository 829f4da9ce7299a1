//! The launch as scripts that a person can run by hand, without `orchestrate` on any side: what the guides print, for one job.
//!
//! No wrappers and no run directory: the launcher in the foreground, its output on the terminal. A script is read whole before any of it
//! runs, and nothing in it reads its input, so `ssh HOST sh <HOST.sh` works.

use crate::inventory::{EntrypointMode, Job, Mount, PullPolicy};
use crate::plan::Plan;
use crate::plan::action::send_files::SendFiles;
use crate::plan::action::{Action, container, memlock};
use crate::plan::launcher::{HostLaunchSpec, ManualLaunch};
use crate::plan::task::HostTask;
use crate::text::shell_quote::{quote, quote_home};

/// Names of the run that a script by hand has no use for.
const INTERNAL_VARIABLES: [&str; 3] = ["ORCH_RUN_DIR", "ORCH_WORKDIR", "ORCH_HOSTFILE"];

/// A script for each host, in node-rank order. `ssh`: the words that reach a host by ssh.
pub(crate) fn render_scripts(plan: &Plan, job: &Job, ssh: &dyn Fn(&str) -> String) -> Vec<(String, String)> {
    let all = plan.hosts.iter().enumerate().filter_map(|(host, context)| {
        let of = |wanted: usize| plan.steps.iter().filter(move |step| step.host == wanted).map(|step| &step.action);
        let launch_spec = of(host).find_map(Action::launch_spec)?;
        let container = of(host).find_map(|action| match action {
            Action::StartContainer(container) => Some(container),
            _ => None,
        })?;
        let tasks = of(host).filter_map(|action| if let Action::RunTask(run) = action { Some(&run.task) } else { None }).collect();
        let script = HostScript { plan, job, host_index: host, launch_spec, container, tasks };
        Some((context.host.clone(), script.render(&ssh(&context.host))))
    });
    all.collect()
}

/// The placeholder in the scripts for values that only the hosts know.
pub(crate) fn find_placeholders(scripts: &[(String, String)]) -> Vec<String> {
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

struct HostScript<'a> {
    plan: &'a Plan,
    job: &'a Job,
    host_index: usize,
    launch_spec: &'a HostLaunchSpec,
    container: &'a container::StartContainer,
    tasks: Vec<&'a HostTask>,
}

/// A command with its flags one a line.
fn join_flag_lines(argv: &[String], indent: &str) -> String {
    let mut text = String::new();
    let mut words = argv.iter();
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

impl HostScript<'_> {
    fn run_name(&self) -> &str {
        self.plan.hosts.get(self.host_index).map_or("", |context| context.name.as_str())
    }

    fn render(&self, ssh: &str) -> String {
        let hosts = self.plan.hosts.len();
        let own = self.plan.hosts.get(self.host_index).map_or("", |context| context.host.as_str());
        let master = self.plan.hosts.first().map_or("", |context| context.host.as_str());
        let first = if self.host_index == 0 { "the master: start it first" } else { "start the master first" };
        let mut text = format!(
            "#!/bin/sh\n# {} on {own}: node rank {} of {hosts}; {first}{}.\n# Run it: ssh {ssh} sh <{own}.sh\n# shellcheck disable=SC2016\nset -eu\n\nmain() {{\n",
            self.run_name(),
            self.host_index,
            if self.host_index == 0 { String::new() } else { format!(", {master}") },
        );
        for secret in &self.job.secret_names {
            text.push_str(&format!(": \"${{{secret}:?a secret of this job: export it first}}\"\n"));
        }
        text.push_str(&if self.container.spec.is_some() { self.docker_body() } else { self.bare_host_body() });
        text.push_str("}\n\nmain </dev/null\n");
        text
    }

    fn rank_variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.launch_spec.env.iter().filter(|(name, _)| !INTERNAL_VARIABLES.contains(&name.as_str()))
    }

    /// What runs where the ranks are.
    fn rank_script(&self) -> String {
        let mut text = String::new();
        let hostfile = format!("/tmp/{}.hostfile", self.run_name());
        if let Some(hosts) = self.launch_spec.files.get("hostfile") {
            text.push_str(&format!("cat >{hostfile} <<'HOSTS'\n{hosts}HOSTS\nexport ORCH_HOSTFILE={hostfile}\n"));
        }
        for (name, value) in &self.launch_spec.env_defaults {
            text.push_str(&format!("[ -n \"${{{name}+set}}\" ] || export {name}={}\n", quote(value)));
        }
        let setup = self.launch_spec.files.get("setup").map(String::as_str).unwrap_or_default();
        match &self.launch_spec.manual_launch {
            ManualLaunch::Command(words) => text.push_str(&format!("{setup}exec {}\n", join_flag_lines(words, ""))),
            ManualLaunch::PerRank(words, each) => {
                text.push_str("pids='' status=0\n");
                for own in each {
                    let own: Vec<String> = own.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
                    text.push_str(&format!(
                        "(\nexport {}\n{setup}exec {}\n) &\npids=\"$pids $!\"\n",
                        own.join(" "),
                        join_flag_lines(words, "")
                    ));
                }
                text.push_str("for pid in $pids; do wait \"$pid\" || status=$?; done\nexit \"$status\"\n");
            }
        }
        text
    }

    /// The tasks of `prepare` on this host that run in the container, or those beside it; with the values that other hosts register.
    fn task_script(&self, in_container: bool) -> String {
        let mut text = String::new();
        let mut last_contained = None;
        for task in &self.job.tasks {
            if task.files.is_none() && task.in_container != in_container {
                last_contained = Some(task.number).filter(|_| task.in_container);
                continue;
            }
            if let (false, Some(before), None) = (in_container, last_contained.take(), &task.files) {
                text.push_str(&format!("# `orchestrate` runs this one after task {before}, which is in the container\n"));
            }
            let context = self.plan.hosts.get(self.host_index).filter(|_| in_container == self.container.spec.is_some());
            text.extend(context.and_then(|context| SendFiles::new(task, self.host_index, context)).map(|files| files.manual_script()));
            match (self.tasks.iter().find(|own| own.number == task.number), &task.register) {
                (Some(own), _) => text.push_str(&own.manual_script(" || exit 1")),
                (None, Some(variable)) if task.shares_value => {
                    let name = task.name.replace(['"', '$', '`', '\\', '}'], " ");
                    text.push_str(&format!(
                        ": \"${{{variable}:?the output of task {} on another host, {name}: export it first}}\"\n",
                        task.number
                    ));
                }
                (None, _) => {}
            }
        }
        text
    }

    /// The shell that `launch.setup` is written for.
    fn rank_shell(&self) -> &'static str {
        if self.launch_spec.files.contains_key("setup") { "bash" } else { "sh" }
    }

    fn bare_host_body(&self) -> String {
        let mut text = self.task_script(false);
        for (name, value) in self.rank_variables() {
            text.push_str(&format!("export {name}={}\n", quote(value)));
        }
        if let Some(dir) = self.launch_spec.env.get("ORCH_WORKDIR").filter(|dir| !dir.is_empty()) {
            text.push_str(&format!("cd {}\n", quote_home(dir, quote)));
        }
        text.push_str(&format!("exec {} -c {}\n", self.rank_shell(), quote(&self.rank_script())));
        text
    }

    fn docker_body(&self) -> String {
        let Some(spec) = &self.container.spec else { return String::new() };
        let image = quote(&spec.image);
        let mut text = self.task_script(false);
        for Mount { source: from, .. } in spec.mounts.iter().filter(|m| m.create_source) {
            text.push_str(&format!("mkdir -p {}\n", quote_home(from, quote)));
        }
        let inspect = format!("docker image inspect {image} >/dev/null 2>&1");
        text.push_str(&match spec.pull {
            PullPolicy::Missing => format!("{inspect} || docker pull {image}\n"),
            PullPolicy::Always => format!("docker pull {image}\n"),
            PullPolicy::Never => format!("{inspect} || {{ echo 'the image is missing, and container.pull is never' >&2; exit 1; }}\n"),
        });
        text.push_str("ib=''\n");
        text.push_str("if [ -d /dev/infiniband ]; then ib=--device=/dev/infiniband; fi\n");
        // Rootless docker, and one without CAP_SYS_RESOURCE, starts no container that may lock memory without a limit.
        text.push_str(&format!(
            "lock={}\ncase $(docker run --rm --network=none \"$lock\" --entrypoint=/bin/sh {image} -c : </dev/null 2>&1) in *rlimit*) lock='' ;; esac\n",
            memlock::UNLIMITED_FLAG
        ));
        let mut flags: Vec<String> = vec!["--rm".to_owned(), format!("--name={}", quote(&self.container.context.container_name()))];
        let left_out = ["--name=", "--label=", "--restart=", "--log-", "--mount=", "--env=", "--stop-timeout="];
        let ours = self.container.docker_flags(spec).into_iter().filter(|flag| !left_out.iter().any(|start| flag.starts_with(start)));
        flags.extend(ours.chain(spec.docker_args.iter().cloned()).map(|flag| quote(&flag)));
        for Mount { source: from, target: to, read_only, .. } in &spec.mounts {
            let end = if *read_only { ",readonly" } else { "" };
            flags.push(format!("--mount=type=bind,source={},target={}{end}", quote_home(from, quote), quote(to)));
        }
        let common = spec.env.iter().filter(|(name, _)| !self.launch_spec.env.contains_key(*name));
        flags.extend(common.chain(self.rank_variables()).map(|(name, value)| quote(&format!("--env={name}={value}"))));
        let registered = self.job.tasks.iter().filter(|task| !task.in_container).filter_map(|task| task.register.as_ref());
        flags.extend(self.job.secret_names.iter().chain(registered).map(|name| format!("--env={name}")));
        if let Some(dir) = self.launch_spec.env.get("ORCH_WORKDIR").filter(|dir| !dir.is_empty()) {
            flags.push(quote(&format!("--workdir={dir}")));
        }
        let shell = self.rank_shell();
        let tail = match spec.entrypoint {
            EntrypointMode::Overridden => format!("--entrypoint={shell} {image} -c"),
            EntrypointMode::Image => format!("{image} {shell} -c"),
        };
        text.push_str(&format!(
            "exec docker run ${{ib:+\"$ib\"}} ${{lock:+\"$lock\"}} \\\n  {} \\\n  {tail} {}\n",
            flags.join(" \\\n  "),
            quote(&format!("{}{}", self.task_script(true), self.rank_script()))
        ));
        text
    }
}

//! The container that stays, with the keeper as its main process; on a bare host the keeper alone.
//!
//! The flags are training-safe by default (mission.md 5.7): shared memory, locked memory, file handles, no restart by the daemon, bounded
//! engine logs, a TERM that is waited for. Bind mounts go by `--mount`, which refuses a missing source where `-v` would make it as root.

use std::time::Duration;

use crate::inventory::{self, ContainerUser};
use crate::model::phase::START_KEEPER;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::{ActionResult, Issue, Observation, memlock};
use crate::plan::fact_rules::container_name_taken;
use crate::plan::facts::{DockerStatus, HostFacts};
use crate::plan::host_context::HostContext;
use crate::plan::launcher::expand_home;
use crate::plan::logind::{EXIT_NO_SCOPE, SystemdScope};
use crate::text::shell_quote::{join_quoted, quote};

/// A mount's source with `create: true` could not be created.
const EXIT_MKDIR_FAILED: i32 = 73;

/// Starts the container, or on a bare host the keeper.
#[derive(Debug, Clone, Default)]
pub struct StartContainer {
    pub context: HostContext,
    /// `None`: a bare host.
    pub spec: Option<inventory::ContainerSettings>,
    /// Decides whether an existing container fits.
    pub container_hash: String,
    /// `user@laptop`.
    pub owner: String,
    /// From TERM to KILL, seconds.
    pub stop_grace: u64,
    /// What `--gpus` gets, already turned into indexes where the inventory counts.
    pub gpus_flag: Option<String>,
    /// The ssh user's `uid:gid`, for `user: me`.
    pub user_ids: String,
    /// The ssh user's home on that host, for `~/` in mounts.
    pub home: String,
    /// Whether a fitting container is replaced all the same.
    pub recreate: bool,
    /// Whether containers of checks are there that ended before they could remove them.
    pub has_leftover_checks: bool,
    /// Where the keeper of a bare host starts.
    pub scope: SystemdScope,
}

impl StartContainer {
    pub(super) fn title(&self) -> &'static str {
        if self.spec.is_some() { "start the container" } else { START_KEEPER }
    }

    /// Whether the container that is there was made from the same text and the same image.
    pub fn is_up_to_date(&self, facts: &HostFacts) -> bool {
        facts.container().is_some_and(|c| c.container_hash == self.container_hash && facts.image_id.as_ref().is_none_or(|i| *i == c.image))
            && !self.recreate
    }

    fn always_pulls(&self) -> bool {
        self.spec.as_ref().is_some_and(|s| s.pull == inventory::PullPolicy::Always)
    }

    pub(super) fn observe(&self, facts: &HostFacts) -> Observation {
        if self.spec.is_none() {
            return Observation::Needed(String::new());
        }
        if let Some(problem) = container_name_taken(facts, &self.context) {
            return Observation::Impossible(vec![problem.into_issue()]);
        }
        if let DockerStatus::Unusable(message) = &facts.docker {
            return Observation::Impossible(vec![Issue::new(format!("docker is not usable: {message}"), "")]);
        }
        match facts.container() {
            // What a pull brings is only known after it: then the script compares.
            Some(c) if self.is_up_to_date(facts) && c.status == "running" && !self.always_pulls() => {
                Observation::Satisfied(format!("{} runs", c.name))
            }
            Some(c) if self.is_up_to_date(facts) => Observation::Needed(format!("it is {}", c.status)),
            Some(_) if self.recreate => Observation::Needed("to be created again".to_owned()),
            Some(_) => Observation::Needed("created with other settings or another image".to_owned()),
            None => Observation::Needed("not there".to_owned()),
        }
    }

    pub(super) fn command(&self) -> RemoteCommand {
        let Some(spec) = &self.spec else { return self.keeper_command() };
        let context = &self.context;
        let container = quote(&context.container_name());
        let mut script = context.lock_check();
        if self.has_leftover_checks {
            script.push_str(&format!(
                "for i in $(D ps -a -q --no-trunc --filter label=orchestrate.check --filter label=orchestrate.name={} --filter label=orchestrate.host={}); do D rm -f \"$i\" >/dev/null; done\n",
                quote(&context.name),
                quote(&context.host)
            ));
        }
        for mount in spec.mounts.iter().filter(|m| m.create_source) {
            script.push_str(&format!("mkdir -p {} || exit {EXIT_MKDIR_FAILED}\n", quote(&expand_home(&mount.source, &self.home))));
        }
        script.push_str(&format!(
            "found=$(D inspect --type container --format '{{{{index .Config.Labels \"orchestrate.name\"}}}}/{{{{index .Config.Labels \"orchestrate.host\"}}}} {{{{index .Config.Labels \"orchestrate.container_hash\"}}}} {{{{.Image}}}} {{{{.State.Status}}}}' {container} 2>/dev/null)\n\
             image=$(D image inspect --format '{{{{.Id}}}}' {image} 2>/dev/null)\n\
             case $found in\n\
             '') ;;\n\
             {fits}\" $image \"*) {keep} ;;\n\
             {ours}' '*) D rm -f {container} >/dev/null || exit 78 ;;\n\
             *) echo 'the name is taken by a container that orchestrate did not create' >&2; exit 78 ;;\n\
             esac\n",
            image = quote(&spec.image),
            fits = quote(&format!("{}/{} {}", context.name, context.host, self.container_hash)),
            ours = quote(&format!("{}/{}", context.name, context.host)),
            keep = if self.recreate {
                format!("D rm -f {container} >/dev/null || exit 78")
            } else {
                format!("case $found in *running) ;; *) D start {container} >/dev/null || exit 79 ;; esac")
            },
        ));
        script.push_str(&format!(
            "most=\n\
             if [ -z \"$(D ps -q --no-trunc --filter name='^/{name}$' 2>/dev/null)\" ]; then\n\
             ib=; [ -d /dev/infiniband ] && ib='--device=/dev/infiniband'\n\
             start() {{ D run -d $lock {flags} $ib {rest} >/dev/null; }}\n\
             drop() {{ case $(D inspect --type container --format '{{{{index .Config.Labels \"orchestrate.host\"}}}}' {container} 2>/dev/null) in {host}) D rm -f {container} >/dev/null ;; esac; }}\n\
             {attempt}attempt\n\
             if [ $rc -ne 0 ]; then printf '%s\\n' \"$says\" >&2; drop; exit $rc; fi\n\
             fi\n\
             {lib}\n\
             p=$(D inspect --type container --format '{{{{.State.Pid}}}} {{{{.Id}}}}' {container}) || exit 78\n\
             # The pid is proven to be the container's, and not another machine's, where its cgroup names the container.\n\
             s=$(born \"${{p%% *}}\") g=; case $(cat \"/proc/${{p%% *}}/cgroup\" 2>/dev/null) in *\"${{p#* }}\"*) g=proven ;; esac\n\
             printf '%s\\n' \"$p ${{s:--}} $(boot) $g\" >\"$P/container.pid.new\" && mv -f \"$P/container.pid.new\" \"$P/container.pid\" || exit 78\n\
             D inspect --type container --format '{{{{.Image}}}}' {container} >\"$P/image\"\n\
             cat \"$P/container.pid\"; [ -z \"$most\" ] || echo \"memlock $most $ib\"\n",
            attempt = memlock::START_WITH_MEMLOCK_SH,
            lib = include_str!("../../../assets/lib.sh"),
            name = context.container_name(),
            host = quote(&context.host),
            flags = join_quoted(&[self.docker_flags(spec), spec.docker_args.clone()].concat()),
            rest = join_quoted(&self.image_args(spec)),
        ));
        RemoteCommand::from_script("start the container", script, Duration::from_secs(180))
    }

    /// On a bare host: the keeper in a session of its own, unless it runs.
    fn keeper_command(&self) -> RemoteCommand {
        let script = format!(
            "{guard}{alive}\
             {{ read -r p s b <\"$P/keeper.pid\"; }} 2>/dev/null\n\
             if [ -n \"$p\" ] && [ \"${{b:-$(boot)}}\" = \"$(boot)\" ] && [ \"$(born \"$p\")\" = \"$s\" ]; then echo \"$p\"; exit 0; fi\n\
             {detach}\n\
             {tried}detach {words}/bin/sh \"$IN/keeper\"\n\
             printf '%s %s %s\\n' \"$!\" \"$(born $!)\" \"$(boot)\" >\"$P/keeper.pid.new\" && mv -f \"$P/keeper.pid.new\" \"$P/keeper.pid\" && cat \"$P/keeper.pid\"\n",
            guard = self.context.lock_check(),
            alive = include_str!("../../../assets/lib.sh"),
            detach = DETACH_SH,
            tried = self.scope.probe_script(),
            words = self.scope.command_prefix(),
        );
        RemoteCommand::from_script(START_KEEPER, script, Duration::from_secs(20))
    }

    /// Without the limit of locked memory, which is found out on the host, and without the user's own flags, which follow and win.
    pub(crate) fn docker_flags(&self, spec: &inventory::ContainerSettings) -> Vec<String> {
        let context = &self.context;
        let mut flags: Vec<String> = vec![
            format!("--name={}", context.container_name()),
            format!("--label=orchestrate.container_hash={}", self.container_hash),
            format!("--label=orchestrate.owner={}", self.owner),
            "--init".to_owned(),
            "--restart=no".to_owned(),
            format!("--stop-timeout={}", self.stop_grace + 5),
            format!("--network={}", spec.network),
            format!("--shm-size={}", spec.shm_size),
            "--ulimit=stack=67108864".to_owned(),
            "--ulimit=core=0".to_owned(),
            "--cap-add=IPC_LOCK".to_owned(),
            "--log-driver=json-file".to_owned(),
            "--log-opt=max-size=20m".to_owned(),
            "--log-opt=max-file=2".to_owned(),
            format!("--mount=type=bind,source={dir},target={dir},readonly", dir = context.input_dir()),
            format!("--mount=type=bind,source={dir},target={dir}", dir = context.output_dir()),
        ];
        flags.splice(1..1, context.label_flags());
        if let Some(gpus) = &self.gpus_flag {
            flags.push(format!("--gpus={gpus}"));
        }
        for mount in &spec.mounts {
            let read_only = if mount.read_only { ",readonly" } else { "" };
            flags.push(format!("--mount=type=bind,source={},target={}{read_only}", expand_home(&mount.source, &self.home), mount.target));
        }
        for (name, value) in &spec.env {
            flags.push(format!("--env={name}={value}"));
        }
        match &spec.user {
            ContainerUser::Image => {}
            ContainerUser::SshUser => flags.push(format!("--user={}", self.user_ids)),
            ContainerUser::Root => flags.push("--user=0:0".to_owned()),
            ContainerUser::Ids(ids) => flags.push(format!("--user={ids}")),
        }
        flags
    }

    fn image_args(&self, spec: &inventory::ContainerSettings) -> Vec<String> {
        vec!["--entrypoint=/bin/sh".to_owned(), spec.image.clone(), format!("{}/keeper", self.context.input_dir())]
    }

    /// What it says when it runs: its pid, and how much memory it may lock where docker refused to give it all.
    fn parse_started(&self, text: &str) -> ActionResult {
        let mut note = text.split_whitespace().next().map(|p| format!("pid {p}")).unwrap_or_default();
        let mut warning = String::new();
        let mut words = text.lines().find_map(|line| line.strip_prefix("memlock ")).unwrap_or_default().split_whitespace();
        if let Some(most) = words.next() {
            let limit = most
                .parse()
                .map_or_else(|_| "docker's default limit".to_owned(), |bytes| format!("at most {}", memlock::format_bytes(bytes)));
            note = format!("{note}; locked memory: {limit}, docker refused to lift the limit");
            if words.next().is_some() {
                warning = format!(
                    "locked memory in the container: {limit}, since docker refused to lift the limit; InfiniBand needs more; \
                     help: give dockerd on {} CAP_SYS_RESOURCE or `LimitMEMLOCK=infinity`; for rootless docker raise memlock in \
                     /etc/security/limits.conf",
                    self.context.host
                );
            }
        }
        ActionResult::Done { note, changed: true, warning }
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            return self.parse_started(&output.stdout_text());
        }
        let message = output.error_line();
        let hint = if output.exit_code == EXIT_NO_SCOPE {
            self.scope.hint(&self.context.host)
        } else if output.exit_code == EXIT_MKDIR_FAILED {
            "mount a directory that the ssh user may create, or create it on the host as root and remove `create: true`".to_owned()
        } else if message.contains("could not select device driver") || message.contains("nvidia-container") {
            format!("install nvidia-container-toolkit on {} and restart docker, or set container.gpus: none", self.context.host)
        } else if message.contains(&self.context.dir_prefix()) {
            // The ssh user made both directories in this same script's run, so that only the daemon cannot see them.
            format!(
                "docker cannot mount {}.in and {}.out: the NFS server squashes root (root_squash); set run_dir to a directory on a disk of the host, for example /var/tmp/orchestrate",
                self.context.dir_prefix(),
                self.context.dir_prefix()
            )
        } else if message.contains("bind source path does not exist") || message.contains("invalid mount config") {
            "create the directory on the host, or set `create: true` on the mount".to_owned()
        } else if message.contains("no space left") {
            format!("free space on {}: `docker system df` shows what docker uses", self.context.host)
        } else if message.contains("orchestrate did not create") {
            format!("inspect it with `docker inspect {}`; rename or remove it, or change `name`", self.context.container_name())
        } else {
            String::new()
        };
        ActionResult::failed(format!("could not {}: {message}", self.title()), hint)
    }
}

/// sh: starts words detached from this session, in one of their own where the host has `setsid`; `$!` is the new session's leader.
pub const DETACH_SH: &str = "detach() { if command -v setsid >/dev/null 2>&1; then setsid \"$@\" </dev/null >/dev/null 2>&1 & else set -m; \"$@\" </dev/null >/dev/null 2>&1 & set +m; fi; }";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_limit_warns_only_with_infiniband() {
        let container = StartContainer {
            context: HostContext { in_container: true, ..HostContext::new("train", "gpu01", "/run") },
            ..StartContainer::default()
        };
        let judged = |text: &str| match container.parse_started(text) {
            ActionResult::Done { note, warning, .. } => (note, warning),
            other => panic!("{other:?}"),
        };
        assert_eq!(judged("77 abc\n"), ("pid 77".to_owned(), String::new()));
        let output = "pid 77; locked memory: at most 8 MiB, docker refused to lift the limit";
        assert_eq!(judged("77 abc\nmemlock 8388608 \n"), (output.to_owned(), String::new()));
        let (note, warning) = judged("77 abc\nmemlock default --device=/dev/infiniband\n");
        assert!(note.contains("docker's default limit"), "{note}");
        assert!(warning.contains("InfiniBand needs more; help: give dockerd on gpu01 CAP_SYS_RESOURCE"), "{warning}");
    }
}

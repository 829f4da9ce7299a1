//! One host's place in a run: its directories, its container's name, and the sh fragments that every script begins with.
//!
//! The layout on a host is defined here and in `assets/*.sh`, nowhere else. Below `<run_dir>/<name>/` each host has three
//! directories, one trust each:
//! - `<host>.private`, 0700, never mounted: the lock, the records of runs, what the host's side knows to be true;
//! - `<host>.in`, mounted read-only: what the host's side gives to the ranks; it is never read back;
//! - `<host>.out`, mounted writable and open to every user in the container: logs, pids and statuses, untrusted until `assets/read.sh` has checked them.
//!
//! Tasks of `prepare` that run on the host beside a container have an in and an out directory of their own inside the private one.

use crate::inventory::{Become, Inventory, InventoryHost};
use crate::text::shell_quote::{join_quoted, quote};

/// Functions of sh that read what a rank may have written.
pub const SAFE_READ_SH: &str = include_str!("../../assets/read.sh");

/// A path that finds docker and nvidia-smi without rc files.
pub(crate) const TOOL_PATH_SH: &str =
    "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin; export PATH\n";

/// How the directories of host tasks begin in the private directory: `host.in`, `host.out`. `assets/facts.sh` and `task.sh` know them too.
const HOST_TASK_DIRS: &str = "host";

/// Where on a host a run lives and how its processes are reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostContext {
    pub name: String,
    /// The host's name in the inventory.
    pub host: String,
    /// The run's id; empty where there is none.
    pub run_id: String,
    /// `<run_dir>` on that host, absolute.
    pub run_dir_root: String,
    /// Whether docker goes through `sudo -n`.
    pub docker_needs_sudo: bool,
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// Whether the ranks run in a container.
    pub in_container: bool,
    /// Whether the run has tasks on the bare host beside its container.
    pub has_host_tasks: bool,
    /// Whether this is the place of those tasks: see [`HostContext::host_task_context`].
    pub is_host_task_place: bool,
    /// The token of the lock that changing scripts check; `None`: nothing is changed.
    pub lock_token: Option<String>,
    /// The follower of the run (`RunFollower::format`); empty: none.
    pub follower: String,
    /// The longest that a log of the run can be, bytes; 0: not known.
    pub max_log_bytes: u64,
    /// How many ranks the run has: files of others are ignored; 0: not known.
    pub world_size: u32,
    /// The job of a cluster whose node this is: the ranks are on another machine that shares the run directory. Nothing is known of its
    /// processes, and nothing private of ours is there.
    pub cluster_job: Option<u64>,
}

impl HostContext {
    /// A bare host, without a run or a lock.
    pub fn new(name: impl Into<String>, host: impl Into<String>, run_dir_root: impl Into<String>) -> HostContext {
        HostContext { name: name.into(), host: host.into(), run_dir_root: run_dir_root.into(), ..HostContext::default() }
    }

    /// A host as the inventory describes it, without a run or a lock.
    pub fn from_inventory(inventory: &Inventory, host: &InventoryHost, run_dir_root: &str) -> HostContext {
        HostContext {
            docker_needs_sudo: host.ssh.r#become == Become::Sudo,
            docker_host: inventory.engine.as_ref().and_then(|e| e.host.clone()),
            in_container: inventory.engine.is_some(),
            ..HostContext::new(&inventory.name, &host.name, run_dir_root)
        }
    }

    /// Where the tasks run that the inventory keeps on the host beside a container: the same run, without the container, with in and out
    /// directories inside the private one. What the container can write could otherwise lead a script of the host anywhere.
    pub fn host_task_context(&self) -> Option<HostContext> {
        let has = self.has_host_tasks && self.in_container && self.cluster_job.is_none();
        has.then(|| HostContext { in_container: false, has_host_tasks: false, is_host_task_place: true, ..self.clone() })
    }

    /// The container's name: one per name and host, so that a clash is noticed and hosts may share an engine.
    pub fn container_name(&self) -> String {
        format!("orch-{}-{}", self.name, self.host.replace(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c), "-"))
    }

    /// `<run_dir>/<name>/<host>`: how the paths of this host's directories begin.
    pub fn dir_prefix(&self) -> String {
        format!("{}/{}/{}", self.run_dir_root, self.name, self.host)
    }

    /// What no rank can reach.
    pub fn private_dir(&self) -> String {
        format!("{}.private", self.dir_prefix())
    }

    /// What ranks are given: mounted read-only at the same path.
    pub fn input_dir(&self) -> String {
        format!("{}.in", self.files_prefix())
    }

    /// Where ranks write: mounted at the same path.
    pub fn output_dir(&self) -> String {
        format!("{}.out", self.files_prefix())
    }

    fn files_prefix(&self) -> String {
        if self.is_host_task_place { format!("{}/{HOST_TASK_DIRS}", self.private_dir()) } else { self.dir_prefix() }
    }

    /// Folders in memory that may hold a secret for a moment, as words of a script.
    pub const MEMORY_DIRS: &str = "/dev/shm \"/run/user/$(id -u)\"";

    /// How the folder of a login begins that lives as long as a pull; a dot and six characters follow. Safe in a script as it stands.
    pub fn login_dir_prefix(&self) -> String {
        format!(".orch-login.{}", self.container_name())
    }

    /// Removes what killed logins left in memory. Needs the lock: a login of this name and host that is under way would lose its folder.
    pub fn remove_logins_script(&self) -> String {
        format!(
            "for m in {}; do for l in \"$m\"/{}.??????; do [ -d \"$l\" ] && [ ! -L \"$l\" ] && [ -O \"$l\" ] && rm -rf \"$l\"; done; done\n",
            HostContext::MEMORY_DIRS,
            self.login_dir_prefix()
        )
    }

    /// How the file in memory is named that hands a launch its secrets; a dot and the run's id follow. Safe in a script as it stands. With
    /// `--ipc=host` it is the host's memory.
    pub fn secret_file_prefix(&self) -> String {
        format!("/dev/shm/.orch-env.{}", self.container_name())
    }

    /// A loop over what killed launches left of these files: each is `$l`.
    pub fn for_each_secret_script(&self, then: &str) -> String {
        format!(
            "for l in {}.????????-??????-????; do if [ -e \"$l\" ] || [ -L \"$l\" ]; then {then}; fi; done\n",
            self.secret_file_prefix()
        )
    }

    /// The flags of docker by which a container is known as one of this name and host, and of this directory.
    pub fn label_flags(&self) -> [String; 3] {
        [
            format!("--label=orchestrate.name={}", self.name),
            format!("--label=orchestrate.host={}", self.host),
            format!("--label=orchestrate.run_dir={}", self.run_dir_root),
        ]
    }

    /// Lists the containers of any kind with this name and host: `<run_dir>|<id>|<name> (<status>)` each. Those of another user name another
    /// directory.
    pub fn list_containers_script(&self) -> String {
        format!(
            "D ps -a --no-trunc --filter label=orchestrate.name={} --filter label=orchestrate.host={} --format '{{{{.Label \"orchestrate.run_dir\"}}}}|{{{{.ID}}}}|{{{{.Names}}}} ({{{{.Status}}}})'",
            quote(&self.name),
            quote(&self.host)
        )
    }

    /// The directory of what the run is given.
    pub fn run_dir(&self) -> String {
        format!("{}/{}", self.input_dir(), self.run_id)
    }

    /// How the paths of the files begin that the run's processes write.
    pub fn run_file_prefix(&self) -> String {
        format!("{}/{}.", self.output_dir(), self.run_id)
    }

    /// The run's record.
    pub fn run_record_path(&self) -> String {
        match self.cluster_job {
            Some(_) => format!("{}/settings", self.run_dir()),
            None => format!("{}/{}.json", self.private_dir(), self.run_id),
        }
    }

    /// Which boot of the host the run was made in.
    pub fn boot_id_path(&self) -> String {
        format!("{}/{}.boot", self.private_dir(), self.run_id)
    }

    /// Which tasks have sent their files: they run no process that leaves a status.
    pub fn sent_files_path(&self) -> String {
        format!("{}/{}.files", self.private_dir(), self.run_id)
    }

    /// The mark that an order has stopped the run, where no rank can write it; on a cluster the job's script makes it.
    pub fn stop_marker(&self) -> String {
        if let Some(job) = self.cluster_job {
            return format!("{}/{}/slurm-{job}/stopped.{}", self.run_dir_root, self.name, self.run_id);
        }
        format!("{}/{}.stopped", self.private_dir(), self.run_id)
    }

    pub(crate) fn docker_words(&self) -> Vec<String> {
        let mut words = if self.docker_needs_sudo { vec!["sudo", "-n", "docker"] } else { vec!["docker"] };
        if let Some(host) = &self.docker_host {
            words.extend(["-H", host]);
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// The words that run docker on this host.
    pub fn docker_command(&self) -> String {
        join_quoted(&self.docker_words())
    }

    /// The words before `sh …` that run it in the container, with its standard input.
    pub(crate) fn container_shell_words(&self) -> Vec<String> {
        let mut words = self.docker_words();
        words.extend(["exec".to_owned(), "-i".to_owned(), self.container_name()]);
        words
    }

    /// What begins every script: a path that finds docker and nvidia-smi without rc files, and the names the rest uses.
    pub fn script_preamble(&self) -> String {
        format!(
            "{TOOL_PATH_SH}umask 077\nP={} IN={} OUT={}\nD() {{ {} \"$@\"; }}\n",
            quote(&self.private_dir()),
            quote(&self.input_dir()),
            quote(&self.output_dir()),
            self.docker_command()
        )
    }

    /// What begins a script that changes something: ends with 75 unless the name is locked by us.
    pub fn lock_check(&self) -> String {
        let mut text = self.script_preamble();
        if let Some(token) = &self.lock_token {
            text.push_str(&format!(
                "case $(readlink \"$P/lock\" 2>/dev/null) in {}:*) ;; *) echo 'another process holds the lock' >&2; exit 75 ;; esac\n",
                quote(token)
            ));
        }
        text
    }

    /// Words that run a line of sh as root in a container of the run's image that is there for this alone: it reaches the open directory (`$0`)
    /// and nothing else, so that a link in it leads nowhere. For what the ssh user can neither read nor remove. `word` is its `$1`.
    pub fn run_as_root_script(&self, line: &str, word: &str) -> String {
        format!(
            "image=; {{ read -r image <\"$P/image\"; }} 2>/dev/null; case $image in sha256:*[!0-9a-f]*) ;; sha256:*) \
             D run --rm --network=none --user=0 --entrypoint=/bin/sh {} {} \"$image\" -c {} \"$OUT\" {} </dev/null >/dev/null ;; esac",
            join_quoted(&self.label_flags()),
            quote(&format!("--mount=type=bind,source={dir},target={dir}", dir = self.output_dir())),
            quote(line),
            quote(word),
        )
    }

    /// Words that run `sh <argument words>` where the ranks are: inside the container, or on the bare host.
    pub fn exec_script(&self, words: &str) -> String {
        if self.in_container { format!("D exec {} /bin/sh {words}", quote(&self.container_name())) } else { format!("/bin/sh {words}") }
    }
}

/// Text for a file, in a script: `name` is written whole or not at all, with the given octal mode.
pub fn write_file_script(path: &str, text: &str, mode: &str) -> String {
    let path = quote(path);
    format!("printf %s {} >{path}.new && chmod {mode} {path}.new && mv -f {path}.new {path} || exit 73\n", quote(text))
}

//! A sandbox, a directory for laptops and inventories, and a payload that control files steer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orchestrate::sandbox::{Faults, Sandbox, Scenario};

use super::free_port::free_port;
use super::laptop::Laptop;
use super::wait_until;

/// One rank: prints its rank, creates `up.RANK`, then waits for `go` or `go.RANK`, which holds its exit code. Ranks in `$DEAF` ignore TERM.
const PAYLOAD: &str = r#"#!/bin/sh
term() { trap '' TERM; date +%s%N >"$BENCH/term.$RANK.new"; mv "$BENCH/term.$RANK.new" "$BENCH/term.$RANK"; }
case " $DEAF " in
*" $RANK "*) trap 'term; echo "rank $RANK is deaf"' TERM ;;
*) trap 'term; echo "rank $RANK saw TERM and saved"; exit 143' TERM ;;
esac
echo "rank $RANK of $WORLD_SIZE on $ORCH_HOST"
if [ -e "$BENCH/job" ]; then . "$BENCH/job"; fi
echo $$ >"$BENCH/up.$RANK.new"; mv "$BENCH/up.$RANK.new" "$BENCH/up.$RANK"
while :; do
  for f in "$BENCH/go.$RANK" "$BENCH/go"; do
    if [ -e "$f" ]; then
      read -r code <"$f"
      echo "rank $RANK ends with $code"
      date +%s%N >"$BENCH/died.$RANK"
      exit "$code"
    fi
  done
  sleep 0.2
done
"#;

pub(crate) struct SandboxFixture {
    pub(crate) sandbox: Sandbox,
    pub(crate) master_port: u16,
    dir: tempfile::TempDir,
}

/// Everything in an inventory except its hosts.
pub(crate) struct JobSpec {
    pub(crate) nproc_per_node: u32,
    pub(crate) stop_grace: &'static str,
    pub(crate) in_container: bool,
    /// Lines under `container:`.
    pub(crate) container: String,
    /// Lines under `launch:`.
    pub(crate) launch: String,
    /// Lines under `env:`.
    pub(crate) env: String,
    /// Lines at the top.
    pub(crate) top_level: String,
}

impl Default for JobSpec {
    fn default() -> Self {
        let none = String::new;
        JobSpec {
            nproc_per_node: 1,
            stop_grace: "60s",
            in_container: true,
            container: none(),
            launch: none(),
            env: none(),
            top_level: none(),
        }
    }
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        writeln!(all, "  {line}").expect("writing to a String");
        all
    })
}

/// Prints what the hosts warn of: where their SSH server cuts a connection by itself, a client sees only that it was reset.
fn print_sandbox_warnings() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt().with_env_filter("orchestrate::sandbox=warn").with_ansi(false).with_writer(std::io::stderr).init();
    });
}

impl SandboxFixture {
    pub(crate) async fn start(scenario: &str) -> SandboxFixture {
        print_sandbox_warnings();
        let scenario = Scenario::parse(scenario).expect("a scenario");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_orchestrate"));
        let sandbox = Sandbox::start_with(scenario, program).await.expect("a sandbox");
        let dir = tempfile::Builder::new().prefix("it-").tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("bench")).expect("made");
        std::fs::write(dir.path().join("bench/payload"), PAYLOAD).expect("written");
        SandboxFixture { sandbox, master_port: free_port(), dir }
    }

    /// Healthy hosts.
    pub(crate) async fn with_hosts(count: usize) -> SandboxFixture {
        SandboxFixture::start(&format!("{{hosts: {count}, gpus: 2}}")).await
    }

    /// The directory that the payload and the test share.
    pub(crate) fn control_dir(&self) -> PathBuf {
        self.dir.path().join("bench")
    }

    /// The parent of laptops, inventories and the control directory.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes an inventory; returns its path.
    pub(crate) fn write_inventory(&self, name: &str, job: &JobSpec) -> PathBuf {
        let control_dir = self.control_dir();
        let fixture = control_dir.display();
        let container = if job.in_container {
            format!("container:\n  image: demo/train:1\n  mounts: [\"{fixture}:{fixture}\"]\n{}", indent(&job.container))
        } else {
            String::new()
        };
        let command = if job.launch.contains("command:") || job.launch.contains("shell:") {
            String::new()
        } else {
            format!("  command: [--no_python, /bin/sh, \"{fixture}/payload\"]\n")
        };
        let with = if job.launch.contains("with:") { String::new() } else { "  with: torchrun\n".to_owned() };
        let extra = format!(
            "{container}env:\n  BENCH: \"{fixture}\"\n{}launch:\n{with}  nproc_per_node: {}\n  master_port: {}\n{command}  stop_grace: {}\n{}{}",
            indent(&job.env),
            job.nproc_per_node,
            self.master_port,
            job.stop_grace,
            indent(&job.launch),
            job.top_level
        );
        // On a busy machine a slow connection must not count as an unreachable host.
        let text = self.sandbox.inventory_yaml(name, &extra).replacen("\nssh:\n", "\nssh:\n  connect_timeout: 60s\n", 1);
        self.write_yaml(name, &text)
    }

    /// Writes a file beside the inventories.
    pub(crate) fn write_yaml(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).expect("written");
        file
    }

    /// A laptop with its own home and state directory.
    pub(crate) fn new_laptop(&self, name: &str) -> Laptop {
        let home = self.dir.path().join(name);
        std::fs::create_dir_all(&home).expect("made");
        Laptop { home, env_vars: BTreeMap::new() }
    }

    /// Shell text that the payload sources before it creates `up.RANK`.
    pub(crate) fn set_payload_setup(&self, text: &str) {
        std::fs::write(self.control_dir().join("job"), text).expect("written");
    }

    /// Lets every rank, or one, exit with this code.
    pub(crate) fn end_ranks(&self, rank: Option<u32>, code: i32) {
        let name = rank.map_or("go".to_owned(), |rank| format!("go.{rank}"));
        let draft = self.control_dir().join(format!("{name}.new"));
        std::fs::write(&draft, format!("{code}\n")).expect("written");
        std::fs::rename(&draft, self.control_dir().join(name)).expect("renamed");
    }

    /// Removes all control files, before the next run.
    pub(crate) fn clear_control_files(&self) {
        for entry in std::fs::read_dir(self.control_dir()).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("go") || name.starts_with("up.") || name.starts_with("term.") || name.starts_with("died.") {
                std::fs::remove_file(&path).expect("removed");
            }
        }
    }

    /// Waits until ranks 0 to `count - 1` are up; returns their pids.
    pub(crate) async fn wait_for_ranks(&self, count: u32) -> Vec<i32> {
        let mut pids = Vec::new();
        for rank in 0..count {
            let file = self.control_dir().join(format!("up.{rank}"));
            pids.push(wait_until(&format!("rank {rank} is up"), async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await);
        }
        pids
    }

    /// When a rank received TERM, in nanoseconds since 1970.
    pub(crate) fn term_received_at(&self, rank: u32) -> Option<u128> {
        std::fs::read_to_string(self.control_dir().join(format!("term.{rank}"))).ok()?.trim().parse().ok()
    }

    /// When a rank exited after `end_ranks`, in milliseconds since 1970.
    pub(crate) fn rank_ended_at_ms(&self, rank: u32) -> i64 {
        let text = std::fs::read_to_string(self.control_dir().join(format!("died.{rank}"))).expect("it has ended");
        i64::try_from(text.trim().parse::<i128>().expect("a time") / 1_000_000).expect("a time")
    }

    pub(crate) fn host_home(&self, host: usize) -> PathBuf {
        self.sandbox.host_root(host).expect("a host").join("home")
    }

    /// The directory `<host>.in/<run id>` of the current run.
    pub(crate) fn run_dir(&self, name: &str, host: usize) -> PathBuf {
        self.private_dir(name, host).with_extension("in").join(self.current_run_id(name, host))
    }

    pub(crate) fn current_run_id(&self, name: &str, host: usize) -> String {
        std::fs::read_to_string(self.private_dir(name, host).join("current")).expect("a current run").trim().to_owned()
    }

    /// A file in `<host>.out`, such as `node.rc` or `rank-3.0.log`.
    pub(crate) fn run_file(&self, name: &str, host: usize, file: &str) -> PathBuf {
        self.private_dir(name, host).with_extension("out").join(format!("{}.{file}", self.current_run_id(name, host)))
    }

    /// The directory `<host>.private`.
    pub(crate) fn private_dir(&self, name: &str, host: usize) -> PathBuf {
        self.host_home(host).join(".orchestrate").join(name).join(format!("{}.private", self.sandbox.host_name(host).expect("a host")))
    }

    /// `name id status` of each container of a host.
    pub(crate) fn containers(&self, host: usize) -> Vec<(String, String, String)> {
        let file = self.sandbox.host_root(host).expect("a host").join("docker/state.json");
        let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
        let state: serde_json::Value = serde_json::from_str(&text).expect("docker's state");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let list = state["containers"].as_array().cloned().unwrap_or_default();
        list.iter().map(|c| (text(&c["name"]), text(&c["id"]), text(&c["status"]))).collect()
    }

    pub(crate) fn set_faults(&self, host: &str, faults: &Faults) {
        self.sandbox.set_faults(host, faults).expect("a host");
    }

    /// `docker pull` on these hosts lasts until [`Self::release_pulls`].
    pub(crate) fn hold_pulls(&self, hosts: &[&str]) {
        let go = self.control_dir().join("pull");
        let script = format!(
            "case \" $* \" in *' pull '*) until [ -e '{}' ]; do sleep 0.1; done ;; esac\nexec \"$SANDBOX_HOST/bin/docker\" \"$@\"",
            go.display()
        );
        for host in hosts {
            let programs = [("docker".to_owned(), script.clone())].into();
            self.set_faults(host, &Faults { programs, ..Faults::default() });
        }
    }

    pub(crate) fn release_pulls(&self) {
        std::fs::write(self.control_dir().join("pull"), "").expect("written");
    }

    /// All processes, containers and run directories on the hosts.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found: Vec<String> =
            self.sandbox.processes().iter().map(|pid| format!("process {pid}: {}", process_cmdline(*pid))).collect();
        for (host, name) in (0..).map_while(|host| Some((host, self.sandbox.host_name(host)?))) {
            found.extend(self.containers(host).into_iter().map(|(id, _, status)| format!("{name}: container {id} ({status})")));
            let run_dir = self.host_home(host).join(".orchestrate");
            if run_dir.exists() {
                found.push(format!("{name}: {}", describe_dir(&run_dir)));
            }
        }
        found
    }

    /// Waits until nothing is left on any host: a shell whose connection was closed takes a moment to exit. What ends by itself only after a
    /// while is a leftover.
    pub(crate) async fn assert_no_leftovers(&self) {
        let deadline = Instant::now() + Duration::from_secs(25);
        loop {
            let found = self.leftovers();
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "leftovers:\n{}", found.join("\n"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asserts that nothing is left, then stops the sandbox.
    pub(crate) async fn assert_clean_and_stop(self) {
        self.assert_no_leftovers().await;
        self.sandbox.stop().await.expect("the sandbox ends");
    }
}

fn process_cmdline(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn describe_dir(dir: &Path) -> String {
    let mut names = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { open.push(path) } else { names.push(path.display().to_string()) }
        }
    }
    format!("{} with {}", dir.display(), names.join(" "))
}

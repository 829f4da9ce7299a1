//! The sandbox from the outside: OpenSSH's own client logs in, runs scripts and uses the stand-ins; afterwards nothing is left.
#![expect(clippy::disallowed_methods, clippy::expect_used, reason = "the tests use real programs through helpers")]

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

#[path = "it/support/free_port.rs"]
mod free_port;

use free_port::free_port;
use orchestrate::sandbox::{Faults, OomKill, Sandbox, Scenario};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The limit for any single wait. Reaching it is a failure; a passing test never waits for it.
const TIMEOUT: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_orchestrate");

async fn start_sandbox(yaml: &str) -> Sandbox {
    Sandbox::start_with(Scenario::parse(yaml).expect("a scenario"), PathBuf::from(PROGRAM)).await.expect("a sandbox")
}

fn ssh_command(sandbox: &Sandbox, host: &str, words: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(sandbox.ssh_config_path()).arg(host).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn wait_output(child: Child) -> Output {
    tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.expect("an answer in time").expect("ssh ran")
}

/// Runs a script like the product: `sh -s` with the script on standard input.
async fn run_script(sandbox: &Sandbox, host: &str, text: &str) -> Output {
    let mut child = ssh_command(sandbox, host, &["/bin/sh", "-s"]).stdin(Stdio::piped()).spawn().expect("ssh starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(format!("{{ {text}\nexit; }}\n").as_bytes()).await.expect("written");
    drop(stdin);
    wait_output(child).await
}

async fn run_ok(sandbox: &Sandbox, host: &str, text: &str) -> String {
    let out = run_script(sandbox, host, text).await;
    assert!(
        out.status.success(),
        "{text}: {:?}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

/// The exit code and standard error.
async fn run_failing(sandbox: &Sandbox, host: &str, text: &str) -> (i32, String) {
    let out = run_script(sandbox, host, text).await;
    (out.status.code().expect("a code"), String::from_utf8(out.stderr).expect("text"))
}

async fn wait_until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn host_runs_ssh_commands_like_sshd() {
    let sandbox = start_sandbox("hosts: 2").await;
    let out = wait_output(
        ssh_command(&sandbox, "gpu01", &["echo out; echo err >&2; echo $HOME; hostname; echo ${SSH_CONNECTION##* }; exit 7"])
            .spawn()
            .expect("ssh"),
    )
    .await;
    let home = sandbox.host_root(0).expect("a host").join("home");
    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("out\n{}\ngpu01\n{}\n", home.display(), sandbox.port(0).expect("a host")));
    assert_eq!((String::from_utf8_lossy(&out.stderr).as_ref(), out.status.code()), ("err\n", Some(7)));
    assert_eq!(run_ok(&sandbox, "gpu02", "cat <<'E'\nit's $5\nE").await, "it's $5\n");
    // A command has its own session, as under sshd; death by a signal is reported as a shell does.
    let out = wait_output(ssh_command(&sandbox, "gpu01", &["cut -d' ' -f6 /proc/$$/stat; echo $$"]).spawn().expect("ssh")).await;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text.lines().collect::<std::collections::HashSet<_>>().len(), 1, "its session is its own: {text}");
    let out = wait_output(ssh_command(&sandbox, "gpu01", &["kill -9 $$"]).spawn().expect("ssh")).await;
    assert_eq!(out.status.code(), Some(255), "an exit-signal is 255 for ssh");
    // The session has its own terminal, while the test has none.
    let out = wait_output(
        ssh_command(&sandbox, "gpu01", &["-tt", "test -t 0 && test -t 2 && : </dev/tty && echo terminal; exit 3"]).spawn().expect("ssh"),
    )
    .await;
    assert_eq!((String::from_utf8_lossy(&out.stdout).as_ref(), out.status.code()), ("terminal\r\n", Some(3)));
    // As with sshd, the channel stays open as long as a process holds the output.
    let late = "(until [ -e said ]; do sleep 0.05; done; sleep 0.3; echo late) & echo early; : >said; exit 4";
    let out = wait_output(ssh_command(&sandbox, "gpu01", &[late]).spawn().expect("ssh")).await;
    assert_eq!((String::from_utf8_lossy(&out.stdout).as_ref(), out.status.code()), ("early\nlate\n", Some(4)));
    let dir = sandbox.dir().to_owned();
    sandbox.stop().await.expect("nothing is left");
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn large_stdio_passes_unchanged() {
    let sandbox = start_sandbox("hosts: 1").await;
    let mut child = ssh_command(&sandbox, "gpu01", &["cat"]).stdin(Stdio::piped()).spawn().expect("ssh");
    let mut stdin = child.stdin.take().expect("piped");
    let sent: Vec<u8> = (0..20_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let copy = sent.clone();
    let feed = tokio::spawn(async move { stdin.write_all(&copy).await });
    let out = wait_output(child).await;
    feed.await.expect("fed").expect("written");
    assert!(out.stdout == sent, "20 MB return unchanged");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn processes_survive_dropped_connection_until_sandbox_stops() {
    let sandbox = start_sandbox("hosts: 1").await;
    let child = ssh_command(&sandbox, "gpu01", &["echo $$ >pid; exec sleep 1000"]).spawn().expect("ssh");
    let file = sandbox.host_root(0).expect("a host").join("home/pid");
    let pid: i32 = wait_until("the command runs", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    sandbox.drop_connections("gpu01").expect("a host");
    assert_eq!(wait_output(child).await.status.code(), Some(255));
    assert!(sandbox.processes().contains(&pid), "without a terminal the process survives");
    assert_eq!(run_ok(&sandbox, "gpu01", &format!("kill -0 {pid} && echo lives")).await, "lives\n");
    sandbox.stop().await.expect("nothing is left");
    assert!(!std::path::Path::new(&format!("/proc/{pid}/stat")).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn container_lifecycle_matches_docker() {
    let sandbox = start_sandbox("{hosts: 1, gpus: 4, images: ['demo/train:1'], registry: ['other:2']}").await;
    let id = run_ok(
        &sandbox,
        "gpu01",
        "docker run -d --name box --init --net=host --gpus all --label a.b=c --shm-size 32g --ulimit memlock=-1 --stop-timeout 5 \
         -e 'X=it'\\''s' --mount type=bind,source=$HOME,target=$HOME --workdir $HOME --entrypoint /bin/sh demo/train:1 \
         -c 'trap \"echo bye; exit 3\" TERM; echo hello; while :; do sleep 0.05; done'",
    )
    .await;
    assert_eq!(id.trim().len(), 64);
    assert_eq!(
        run_ok(
            &sandbox,
            "gpu01",
            "docker inspect --format '{{.Name}} {{.State.Running}} {{index .Config.Labels \"a.b\"}} {{.HostConfig.ShmSize}}' box"
        )
        .await,
        "/box true c 34359738368\n"
    );
    assert_eq!(
        run_ok(&sandbox, "gpu01", "docker ps -a --filter label=a.b=c --format '{{.Names}} {{.Label \"a.b\"}} {{.State}}'").await,
        "box c running\n"
    );
    assert_eq!(
        run_ok(&sandbox, "gpu01", "docker exec -e Y=2 box sh -c 'echo $X $Y; pwd; command -v docker || echo none; nvidia-smi -L | wc -l'")
            .await,
        format!("it's 2\n{}\nnone\n4\n", sandbox.host_root(0).expect("a host").join("home").display())
    );
    assert_eq!(run_ok(&sandbox, "gpu01", "printf 'a b' | docker exec -i box cat").await, "a b");
    assert_eq!(run_failing(&sandbox, "gpu01", "docker exec box sh -c 'exit 9'").await.0, 9);
    assert_eq!(run_failing(&sandbox, "gpu01", "docker exec box nope").await.0, 127);
    run_ok(&sandbox, "gpu01", "docker exec -d box sh -c 'echo $$ > exec.pid; exec sleep 1000'").await;
    let file = sandbox.host_root(0).expect("a host").join("home/exec.pid");
    let pid: i32 = wait_until("the detached command runs", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    let (code, output) = run_failing(&sandbox, "gpu01", "docker run -d --name box demo/train:1 true").await;
    assert!(code == 125 && output.contains("Conflict. The container name \"/box\" is already in use by container"), "{output}");
    let (code, output) = run_failing(&sandbox, "gpu01", "docker rm box").await;
    assert!(code == 1 && output.contains("You cannot remove a running container"), "{output}");
    let stop = "docker stop -t 60 box; docker inspect -f '{{.State.ExitCode}}' box; docker logs box";
    assert_eq!(run_ok(&sandbox, "gpu01", stop).await, "box\n3\nhello\nbye\n");
    assert!(!sandbox.processes().contains(&pid), "processes of a container end with it");
    assert_eq!(run_ok(&sandbox, "gpu01", "docker rm box; docker ps -aq").await, "box\n");
    let (code, output) = run_failing(&sandbox, "gpu01", "docker inspect box").await;
    assert!(code == 1 && output.contains("Error: No such object: box"), "{output}");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn docker_pull_prints_each_layer() {
    let sandbox = start_sandbox("{hosts: 1, registry: ['other:2'], image_details: {'other:2': {layers: 4}}}").await;
    let pull = async || run_ok(&sandbox, "gpu01", "docker pull other:2").await;
    let first = pull().await;
    let states = |wanted: &str| first.lines().filter(|line| line.get(12..).is_some_and(|rest| rest == format!(": {wanted}"))).count();
    assert_eq!(first.lines().next(), Some("2: Pulling from other"));
    for (state, count) in
        [("Pulling fs layer", 4), ("Waiting", 1), ("Verifying Checksum", 4), ("Download complete", 4), ("Pull complete", 4)]
    {
        assert_eq!(states(state), count, "{state} in\n{first}");
    }
    assert!(first.contains("\nStatus: Downloaded newer image for other:2\n"), "{first}");
    let again = pull().await;
    assert!(again.lines().count() == 4 && again.contains("\nStatus: Image is up to date for other:2\n"), "{again}");
    assert_eq!(run_ok(&sandbox, "gpu01", "docker pull -q other:2").await, "other:2\n");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn docker_errors_match_docker() {
    let sandbox = start_sandbox("{hosts: 1, registry: ['other:2']}").await;
    for (command, code, words) in [
        ("docker run -d --nope demo/train:1", 125, "unknown flag: --nope"),
        ("docker run -d nothing:1", 125, "pull access denied for nothing"),
        ("docker run -d --pull never other:2 true", 125, "No such image: other:2"),
        (
            "docker run -d --mount type=bind,source=/not/there,target=/x demo/train:1 true",
            125,
            "bind source path does not exist: /not/there",
        ),
        ("docker run -d --name c1 demo/train:1 nope", 127, "exec: \"nope\": executable file not found in $PATH"),
        ("docker stop nobody", 1, "No such container: nobody"),
        ("docker frobnicate", 1, "is not a docker command"),
    ] {
        let (got, output) = run_failing(&sandbox, "gpu01", command).await;
        assert!(got == code && output.contains(words), "{command}: {got} {output}");
    }
    run_ok(&sandbox, "gpu01", "docker pull -q other:2 && docker image inspect --format '{{.Id}}' other:2").await;
    let set = |faults: Faults| sandbox.set_faults("gpu01", &faults).expect("a host");
    set(Faults { no_gpu_runtime: true, ..Faults::default() });
    let (code, output) = run_failing(&sandbox, "gpu01", "docker run -d --name g --gpus all demo/train:1 sleep 9").await;
    assert!(code == 125 && output.contains("could not select device driver \"\" with capabilities: [[gpu]]."), "{output}");
    assert_eq!(run_ok(&sandbox, "gpu01", "docker inspect -f '{{.State.Status}}' g").await, "created\n");
    set(Faults { docker_permission_denied: true, ..Faults::default() });
    let (code, output) = run_failing(&sandbox, "gpu01", "docker ps").await;
    assert!(code == 1 && output.contains("permission denied while trying to connect to the Docker daemon socket"), "{output}");
    run_ok(&sandbox, "gpu01", "sudo -n docker ps").await;
    set(Faults { docker_missing: true, ..Faults::default() });
    assert_eq!(run_failing(&sandbox, "gpu01", "docker ps").await.0, 127);
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn faults_apply_as_configured() {
    let sandbox = start_sandbox("{hosts: 1, faults: {noise: \"Welcome to gpu01\\n\"}}").await;
    let set = |faults: Faults| sandbox.set_faults("gpu01", &faults).expect("a host");
    assert_eq!(run_ok(&sandbox, "gpu01", "echo x").await, "Welcome to gpu01\nx\n");
    set(Faults { round_trip: 0.2, ..Faults::default() });
    let begun = Instant::now();
    assert_eq!(run_ok(&sandbox, "gpu01", "echo x").await, "x\n");
    assert!(begun.elapsed() > Duration::from_secs(1), "a login and a command are at least five round trips: {:?}", begun.elapsed());
    set(Faults { refuse_key: true, ..Faults::default() });
    let (code, output) = run_failing(&sandbox, "gpu01", "true").await;
    assert!(code == 255 && output.contains("Permission denied"), "{output}");
    set(Faults { drop_after_bytes: Some(20_000), ..Faults::default() });
    let out = run_script(&sandbox, "gpu01", "head -c 1000000 /dev/zero").await;
    assert!(out.status.code() == Some(255) && out.stdout.len() < 20_000, "{:?} after {}", out.status, out.stdout.len());
    set(Faults { drop_on: Some("the second step".to_owned()), ..Faults::default() });
    assert_eq!(run_ok(&sandbox, "gpu01", "echo the first step").await, "the first step\n");
    assert_eq!(run_script(&sandbox, "gpu01", "touch ran; echo the second step").await.status.code(), Some(255));
    set(Faults { hang_on: Some("the third".to_owned()), ..Faults::default() });
    let mut hung = ssh_command(&sandbox, "gpu01", &["touch ran; echo the third step"]).spawn().expect("ssh");
    assert!(tokio::time::timeout(Duration::from_millis(400), hung.wait()).await.is_err(), "it hangs");
    hung.kill().await.expect("killed");
    assert!(!sandbox.host_root(0).expect("a host").join("home/ran").exists(), "a held or dropped command never runs");
    set(Faults { clock_skew: 1000.0, ..Faults::default() });
    let there: u64 = run_ok(&sandbox, "gpu01", "date +%s").await.trim().parse().expect("seconds");
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert!((990..1010).contains(&(there - here)), "{there} {here}");
    set(Faults { drop_after_seconds: Some(0.5), ..Faults::default() });
    assert_eq!(run_script(&sandbox, "gpu01", "exec sleep 100").await.status.code(), Some(255));
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn forwarding_reaches_hosts_and_refuses_closed_ports() {
    let sandbox = start_sandbox("hosts: 2").await;
    let config = sandbox.ssh_config_path();
    let proxy = format!("ProxyCommand=ssh -F {} -W %h:%p gpu01", config.display());
    let mut command = Command::new("ssh");
    command
        .arg("-F")
        .arg(&config)
        .args(["-o", &proxy, "gpu02", "hostname"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    assert_eq!(wait_output(command.spawn().expect("ssh")).await.stdout, b"gpu02\n");
    // A port where nobody listens: the forward is refused, and ssh reports it.
    let mut command = Command::new("ssh");
    command.arg("-F").arg(&config).args(["-W", "127.0.0.1:1", "gpu01"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = wait_output(command.spawn().expect("ssh")).await;
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("forwarding failed"), "{out:?}");
    sandbox.stop().await.expect("nothing is left");
}

/// A script that starts a detached torchrun in a new container, waits for its end, and exits with torchrun's code.
fn torchrun_script(nodes: u32, node: u32, port: u16, extra: &str) -> String {
    format!(
        "rm -f rc; docker run -d --name job --init --net=host --gpus all {extra} --workdir $HOME --entrypoint /bin/sh demo/train:1 \
         -c 'trap : TERM; while :; do sleep 1 & wait; done' >/dev/null && docker exec -d job sh -c 'torchrun --nnodes {nodes} --nproc_per_node 4 \
         --node_rank {node} --master_addr 127.0.0.1 --master_port {port} --no_python /bin/sh {{DEMO}}/train.sh >log 2>&1; echo $? >rc.new; mv rc.new rc' \
         && while ! [ -e rc ]; do sleep 0.05; done; docker inspect -f '{{{{.State.OOMKilled}}}}' job; docker rm -f job >/dev/null; cat log; exit $(cat rc)"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn torchrun_runs_gang_across_two_hosts() {
    let sandbox = start_sandbox("hosts: 2").await;
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo");
    let port = free_port();
    let text = |node| torchrun_script(2, node, port, "-e STEPS=20 -e PAUSE=0.5").replace("{DEMO}", demo);
    let (worker, master) = (text(1), text(0));
    let busy = async {
        wait_until("a GPU is busy", async || {
            let output = run_ok(&sandbox, "gpu02", "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits; nvidia-smi --query-compute-apps=pid --format=csv,noheader").await;
            let numbers: Vec<u32> = output.lines().filter_map(|l| l.parse().ok()).collect();
            (numbers.len() == 12 && numbers[..4].iter().all(|n| *n > 50) && numbers[4..8].iter().all(|n| *n == 0)).then_some(())
        })
        .await;
    };
    let (second, first, ()) = tokio::join!(run_script(&sandbox, "gpu02", &worker), run_script(&sandbox, "gpu01", &master), busy);
    for (out, ranks) in [(first, 0..4), (second, 4..8)] {
        let log = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(0), "{log}");
        for rank in ranks {
            assert!(log.contains(&format!("[rank {rank}] Initialized process group with 8 processes")), "{log}");
            assert!(log.contains(&format!("[rank {rank}] training finished")), "{log}");
        }
    }
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn torchrun_reports_failed_and_oom_killed_ranks() {
    let sandbox = start_sandbox("hosts: 2").await;
    sandbox
        .set_faults(
            "gpu02",
            &Faults { oom_kill: Some(OomKill { rank: 2, after: 1.0, matching: "train.sh".to_owned() }), ..Faults::default() },
        )
        .expect("a host");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo");
    let text = |extra: &str| torchrun_script(1, 0, free_port(), extra).replace("{DEMO}", demo);
    let (failed, starved) = (text("-e PAUSE=0.2 -e FAIL_RANK=1 -e FAIL_STEP=20 -e STEPS=1000"), text("-e PAUSE=0.2 -e STEPS=1000"));
    let (failed, starved) = tokio::join!(run_script(&sandbox, "gpu01", &failed), run_script(&sandbox, "gpu02", &starved));
    let log = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{log}");
    assert!(log.starts_with("false\n") && log.contains("exitcode  : 1 (pid: ") && log.contains("rank      : 1 (local_rank: 1)"), "{log}");
    assert!(
        log.contains("CUDA out of memory") && log.contains("closing signal SIGTERM") && log.contains("[rank 3] SIGTERM: checkpoint"),
        "{log}"
    );
    let log = String::from_utf8_lossy(&starved.stdout).into_owned();
    assert_eq!(starved.status.code(), Some(1), "{log}");
    assert!(
        log.starts_with("true\n") && log.contains("exitcode  : -9 (pid: ") && log.contains("Signal 9 (SIGKILL) received by PID"),
        "{log}"
    );
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn stopped_sandbox_leaves_no_processes() {
    let sandbox = start_sandbox("{hosts: 3, gpus: 2}").await;
    for host in ["gpu01", "gpu02", "gpu03"] {
        let text = "docker run -d --init --entrypoint /bin/sh demo/train:1 -c 'trap \"\" TERM; sleep 1000 & env -i sleep 1000 & wait' && \
                    (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' >/dev/null 2>&1 &)";
        run_ok(&sandbox, host, text).await;
    }
    let before = wait_until("all of it runs", async || Some(sandbox.processes()).filter(|p| p.len() >= 15)).await;
    sandbox.stop().await.expect("nothing is left");
    for pid in before {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let dead = state.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z') || rest.starts_with('X'));
        assert!(dead, "{pid} lives: {state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn sixty_four_hosts_answer_concurrently() {
    let sandbox = start_sandbox("hosts: 64").await;
    let names: Vec<String> = (1..=64).map(|n| format!("gpu{n:02}")).collect();
    let query =
        names.iter().map(|name| async { wait_output(ssh_command(&sandbox, name, &["hostname"]).spawn().expect("ssh")).await.stdout });
    let output = futures_util::future::join_all(query).await;
    let expected: Vec<Vec<u8>> = names.iter().map(|name| format!("{name}\n").into_bytes()).collect();
    assert_eq!(output, expected);
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn torchrun_c10d_restarts_and_stops() {
    let sandbox = start_sandbox("hosts: 2").await;
    let port = free_port();
    let text = format!(
        "torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=r1 --no-python sh -c 'echo $RANK of $WORLD_SIZE'"
    );
    let first = run_script(&sandbox, "gpu01", &text);
    let second = async {
        // A plain connection to the port does not count as a node.
        wait_until("the port is open", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
        run_script(&sandbox, "gpu02", &text).await
    };
    let (first, second) = tokio::join!(first, second);
    let mut ranks: Vec<String> = [&first, &second]
        .iter()
        .flat_map(|out| String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    ranks.sort();
    assert_eq!(ranks, ["0 of 4", "1 of 4", "2 of 4", "3 of 4"], "{first:?} {second:?}");
    assert!(first.status.success() && second.status.success());

    let port = free_port();
    let text = format!(
        "python3 -m torch.distributed.run --max_restarts 2 --master_port {port} --no_python sh -c 'echo try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'"
    );
    assert_eq!(run_ok(&sandbox, "gpu01", &text).await, "try 0\ntry 1\n");

    let text = format!(
        "torchrun --master_port {port} --no_python sh -c 'trap \"echo saved; exit 0\" TERM; echo up >up; while :; do sleep 0.05; done' & p=$!; while ! [ -e up ] && kill -0 $p; do sleep 0.02; done; kill -TERM $p; wait $p"
    );
    let out = run_script(&sandbox, "gpu01", &text).await;
    let output = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && out.stdout == b"saved\n" && output.contains("SignalException: Process"), "{out:?}");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn session_limit_and_password_auth_work() {
    let sandbox = start_sandbox("{hosts: 1, password: open sesame, faults: {max_sessions: 2}}").await;
    let socket = sandbox.dir().join("mux");
    let socket = socket.to_str().expect("text");
    let mut master = ssh_command(&sandbox, "gpu01", &["-M", "-S", socket, "-N"]).spawn().expect("ssh");
    wait_until("the master connection is open", async || std::fs::metadata(socket).ok()).await;
    // Never opens its own connection: a session refused by the master connection fails.
    let through =
        |command: &str| ssh_command(&sandbox, "gpu01", &["-S", socket, "-o", "ProxyCommand=false", command]).spawn().expect("ssh");
    let mut held = [through("echo >a; exec sleep 1000"), through("echo >b; exec sleep 1000")];
    let home = sandbox.host_root(0).expect("a host").join("home");
    wait_until("both run", async || (home.join("a").exists() && home.join("b").exists()).then_some(())).await;
    let refused = wait_output(through("echo third")).await;
    assert!(refused.status.code() == Some(255) && refused.stdout.is_empty(), "{refused:?}");
    let pid = sandbox
        .processes()
        .into_iter()
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|l| l.starts_with("sleep")));
    std::process::Command::new("kill").arg(pid.expect("a sleep").to_string()).status().expect("kill ran");
    wait_until("a session is free again", async || (wait_output(through("echo third")).await.stdout == b"third\n").then_some(())).await;
    master.kill().await.expect("killed");
    for child in &mut held {
        child.wait().await.expect("ended with its master");
    }

    let askpass = sandbox.dir().join("askpass");
    std::fs::write(&askpass, "#!/bin/sh\necho open sesame\n").expect("written");
    std::fs::set_permissions(&askpass, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("changed");
    let mut command = ssh_command(&sandbox, "gpu01", &["-o", "BatchMode=no", "-o", "PubkeyAuthentication=no", "hostname"]);
    let out = wait_output(command.env("SSH_ASKPASS", &askpass).env("SSH_ASKPASS_REQUIRE", "force").spawn().expect("ssh")).await;
    assert_eq!(out.stdout, b"gpu01\n", "{out:?}");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs ssh: apt-get install openssh-client"]
async fn killed_sandbox_ends_its_containers() {
    let mut command = Command::new(PROGRAM);
    let mut server = command.args(["sandbox", "--hosts", "1"]).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("started");
    let mut output = tokio::io::BufReader::new(server.stdout.take().expect("piped")).lines();
    let inventory = PathBuf::from(output.next_line().await.expect("read").expect("a line"));
    let dir = inventory.parent().expect("a folder").to_owned();
    let text = "docker run -d --init --entrypoint /bin/sh demo/train:1 -c 'trap \"\" TERM; sleep 4321 & wait; sleep 4321'; \
                torchrun --nproc_per_node 2 --master_port 0 --no_python sleep 4321 >/dev/null 2>&1 & while [ $(ps -e -o args= | grep -c '[s]leep 4321') -lt 3 ]; do sleep 0.05; done";
    let mut child = Command::new("ssh");
    child.arg("-F").arg(dir.join("ssh_config")).args(["gpu01", text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert!(wait_output(child.spawn().expect("ssh")).await.status.success());
    let marker = format!("SANDBOX_DIR={}", dir.display());
    wait_until("the container and the ranks run", async || (count_processes_with(&marker) >= 6).then_some(())).await;
    server.kill().await.expect("killed");
    wait_until("all of them end", async || (count_processes_with(&marker) == 0).then_some(())).await;
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// The number of processes with this variable.
fn count_processes_with(marker: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let environs = entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environs.filter(|bytes| bytes.split(|b| *b == 0).any(|variable| variable == marker.as_bytes())).count()
}

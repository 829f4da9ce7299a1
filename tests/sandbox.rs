//! The sandbox as its users meet it: OpenSSH's own client logs in, runs scripts, drives the stand-ins; afterwards nothing is left.
#![expect(clippy::disallowed_methods, reason = "the proof is real programs")]

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use orchestrate::sandbox::{Faults, OomKill, Sandbox, Scenario};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_orchestrate"))
}

/// Whether OpenSSH's client is here; says so where it is not.
fn have_ssh() -> bool {
    let found = std::process::Command::new("ssh").arg("-V").output().is_ok();
    if !found {
        eprintln!("not run: there is no `ssh` on this machine");
    }
    assert!(found || std::env::var_os("CI").is_none(), "CI must have OpenSSH's client");
    found
}

async fn start(yaml: &str) -> Sandbox {
    Sandbox::start_with(Scenario::parse(yaml).expect("a scenario"), program()).await.expect("a sandbox")
}

fn ssh(sandbox: &Sandbox, host: &str, words: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(sandbox.ssh_config_path()).arg(host).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn finish(child: Child) -> Output {
    tokio::time::timeout(Duration::from_secs(30), child.wait_with_output()).await.expect("an answer within 30 s").expect("ssh ran")
}

/// Runs a script as the product does: `sh -s`, the text on standard input.
async fn script(sandbox: &Sandbox, host: &str, text: &str) -> Output {
    let mut child = ssh(sandbox, host, &["/bin/sh", "-s"]).stdin(Stdio::piped()).spawn().expect("ssh starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(format!("{{ {text}\nexit; }}\n").as_bytes()).await.expect("written");
    drop(stdin);
    finish(child).await
}

async fn ok(sandbox: &Sandbox, host: &str, text: &str) -> String {
    let out = script(sandbox, host, text).await;
    assert!(out.status.success(), "{text}: {:?}\n{}{}", out.status, String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// The exit code and what was said on standard error.
async fn fails(sandbox: &Sandbox, host: &str, text: &str) -> (i32, String) {
    let out = script(sandbox, host, text).await;
    (out.status.code().expect("a code"), String::from_utf8(out.stderr).expect("text"))
}

async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_runs_what_it_is_sent() {
    if !have_ssh() {
        return;
    }
    let sandbox = start("hosts: 2").await;
    let out = finish(ssh(&sandbox, "gpu01", &["echo out; echo err >&2; echo $HOME; hostname; exit 7"]).spawn().expect("ssh")).await;
    let home = sandbox.host_root(0).expect("a host").join("home");
    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("out\n{}\ngpu01\n", home.display()));
    assert_eq!((String::from_utf8_lossy(&out.stderr).as_ref(), out.status.code()), ("err\n", Some(7)));
    assert_eq!(ok(&sandbox, "gpu02", "cat <<'E'\nit's $5\nE").await, "it's $5\n");
    // Its own session, as sshd gives it; died by a signal, as a shell says it.
    assert_eq!(ok(&sandbox, "gpu01", "cut -d' ' -f6 /proc/$$/stat; echo $$").await.lines().collect::<std::collections::HashSet<_>>().len(), 1);
    let out = finish(ssh(&sandbox, "gpu01", &["kill -9 $$"]).spawn().expect("ssh")).await;
    assert_eq!(out.status.code(), Some(255), "an exit-signal is 255 for ssh");
    let dir = sandbox.dir().to_owned();
    sandbox.stop().await.expect("nothing is left");
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_output_and_input_pass_unchanged() {
    if !have_ssh() {
        return;
    }
    let sandbox = start("hosts: 1").await;
    let mut child = ssh(&sandbox, "gpu01", &["cat"]).stdin(Stdio::piped()).spawn().expect("ssh");
    let mut stdin = child.stdin.take().expect("piped");
    let sent: Vec<u8> = (0..20_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let copy = sent.clone();
    let feed = tokio::spawn(async move { stdin.write_all(&copy).await });
    let out = finish(child).await;
    feed.await.expect("fed").expect("written");
    assert!(out.stdout == sent, "20 MB come back as they went");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_survives_a_lost_connection_and_ends_with_the_sandbox() {
    if !have_ssh() {
        return;
    }
    let sandbox = start("hosts: 1").await;
    let child = ssh(&sandbox, "gpu01", &["echo $$ >pid; exec sleep 1000"]).spawn().expect("ssh");
    let file = sandbox.host_root(0).expect("a host").join("home/pid");
    let pid: i32 = until("the command runs", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    sandbox.drop_connections("gpu01").expect("a host");
    assert_eq!(finish(child).await.status.code(), Some(255));
    assert!(sandbox.processes().contains(&pid), "no terminal, so it lives on");
    assert_eq!(ok(&sandbox, "gpu01", &format!("kill -0 {pid} && echo lives")).await, "lives\n");
    sandbox.stop().await.expect("nothing is left");
    assert!(!std::path::Path::new(&format!("/proc/{pid}/stat")).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_lives_as_docker_says() {
    if !have_ssh() {
        return;
    }
    let sandbox = start("{hosts: 1, gpus: 4, images: ['demo/train:1'], registry: ['other:2']}").await;
    let id = ok(
        &sandbox,
        "gpu01",
        "docker run -d --name box --init --net=host --gpus all --label a.b=c --shm-size 32g --ulimit memlock=-1 --stop-timeout 5 \
         -e 'X=it'\\''s' --mount type=bind,source=$HOME,target=$HOME --workdir $HOME --entrypoint /bin/sh demo/train:1 \
         -c 'trap \"echo bye; exit 3\" TERM; echo hello; while :; do sleep 0.05; done'",
    )
    .await;
    assert_eq!(id.trim().len(), 64);
    assert_eq!(
        ok(&sandbox, "gpu01", "docker inspect --format '{{.Name}} {{.State.Running}} {{index .Config.Labels \"a.b\"}} {{.HostConfig.ShmSize}}' box").await,
        "/box true c 34359738368\n"
    );
    assert_eq!(ok(&sandbox, "gpu01", "docker ps -a --filter label=a.b=c --format '{{.Names}} {{.Label \"a.b\"}} {{.State}}'").await, "box c running\n");
    assert_eq!(ok(&sandbox, "gpu01", "docker exec -e Y=2 box sh -c 'echo $X $Y; pwd; command -v docker || echo none; nvidia-smi -L | wc -l'").await,
        format!("it's 2\n{}\nnone\n4\n", sandbox.host_root(0).expect("a host").join("home").display()));
    assert_eq!(ok(&sandbox, "gpu01", "printf 'a b' | docker exec -i box cat").await, "a b");
    assert_eq!(fails(&sandbox, "gpu01", "docker exec box sh -c 'exit 9'").await.0, 9);
    assert_eq!(fails(&sandbox, "gpu01", "docker exec box nope").await.0, 127);
    ok(&sandbox, "gpu01", "docker exec -d box sh -c 'echo $$ > exec.pid; exec sleep 1000'").await;
    let file = sandbox.host_root(0).expect("a host").join("home/exec.pid");
    let pid: i32 = until("the detached command runs", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    assert!(ok(&sandbox, "gpu01", "docker top box -o pid").await.contains(&pid.to_string()));
    let (code, said) = fails(&sandbox, "gpu01", "docker run -d --name box demo/train:1 true").await;
    assert!(code == 125 && said.contains("Conflict. The container name \"/box\" is already in use by container"), "{said}");
    let (code, said) = fails(&sandbox, "gpu01", "docker rm box").await;
    assert!(code == 1 && said.contains("You cannot remove a running container"), "{said}");
    assert_eq!(ok(&sandbox, "gpu01", "docker stop -t 5 box; docker wait box; docker logs box").await, "box\n3\nhello\nbye\n");
    assert!(!sandbox.processes().contains(&pid), "what was started in a container ends with it");
    assert_eq!(ok(&sandbox, "gpu01", "docker rm box; docker ps -aq").await, "box\n");
    let (code, said) = fails(&sandbox, "gpu01", "docker inspect box").await;
    assert!(code == 1 && said.contains("Error: No such object: box"), "{said}");
    sandbox.stop().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_refuses_in_its_own_words() {
    if !have_ssh() {
        return;
    }
    let sandbox = start("{hosts: 1, registry: ['other:2']}").await;
    for (command, code, words) in [
        ("docker run -d --nope demo/train:1", 125, "unknown flag: --nope"),
        ("docker run -d nothing:1", 125, "pull access denied for nothing"),
        ("docker run -d --pull never other:2 true", 125, "No such image: other:2"),
        ("docker run -d --mount type=bind,source=/not/there,target=/x demo/train:1 true", 125, "bind source path does not exist: /not/there"),
        ("docker run -d --name c1 demo/train:1 nope", 127, "exec: \"nope\": executable file not found in $PATH"),
        ("docker stop nobody", 1, "No such container: nobody"),
        ("docker frobnicate", 1, "is not a docker command"),
    ] {
        let (got, said) = fails(&sandbox, "gpu01", command).await;
        assert!(got == code && said.contains(words), "{command}: {got} {said}");
    }
    ok(&sandbox, "gpu01", "docker pull -q other:2 && docker image inspect --format '{{.Id}}' other:2").await;
    let set = |faults: Faults| sandbox.set_faults("gpu01", &faults).expect("a host");
    set(Faults { no_gpu_runtime: true, ..Faults::default() });
    let (code, said) = fails(&sandbox, "gpu01", "docker run -d --name g --gpus all demo/train:1 sleep 9").await;
    assert!(code == 125 && said.contains("could not select device driver \"\" with capabilities: [[gpu]]."), "{said}");
    assert_eq!(ok(&sandbox, "gpu01", "docker inspect -f '{{.State.Status}}' g").await, "created\n");
    set(Faults { docker_permission_denied: true, ..Faults::default() });
    let (code, said) = fails(&sandbox, "gpu01", "docker ps").await;
    assert!(code == 1 && said.contains("permission denied while trying to connect to the Docker daemon socket"), "{said}");
    ok(&sandbox, "gpu01", "sudo -n docker ps").await;
    set(Faults { docker_missing: true, ..Faults::default() });
    assert_eq!(fails(&sandbox, "gpu01", "docker ps").await.0, 127);
    sandbox.stop().await.expect("nothing is left");
}

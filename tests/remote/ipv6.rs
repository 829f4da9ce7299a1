//! Hosts with IPv6 only: sshd, the fabric and the master's port on `::1`.

use crate::login_shells::run_orchestrate;
use crate::sshd::{Sshd, current_user};

/// Rank 0 waits for rank 1 at the master's address, which both ranks must be able to use.
/// Rank 1 connects once: the run waits for the master's port before it starts rank 1.
const RENDEZVOUS_SCRIPT: &str = r#"import os, socket
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["NODE_RANK"] == "0":
    server = socket.create_server(at, family=socket.AF_INET6)
    peer, _ = server.accept()
    while not peer.recv(9): peer, _ = server.accept()
else:
    socket.create_connection(at).sendall(b"hello")
print("met at", *at)
"#;

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn gang_runs_on_ipv6_only_hosts() {
    let sshd = Sshd::start_with("ListenAddress ::1", &["ed25519"]);
    let key = sshd.known_hosts_line("ed25519");
    let key = key.split_once(' ').expect("a key").1;
    sshd.write("known", &["::1", "0:0::0:1"].map(|address| format!("[{address}]:{} {key}", sshd.port)).concat());
    let meet = sshd.write("meet.py", RENDEZVOUS_SCRIPT);
    // Every spelling of the address works.
    let text = format!(
        "name: six\nrun_dir: {dir}/run\nhosts:\n- {{name: a, address: '::1'}}\n- {{name: b, address: '0:0::0:1'}}\n\
         ssh: {{user: {user}, port: {port}, identity: {dir}/id, known_hosts: {dir}/known, config: {dir}/ssh_config, connect_timeout: 60s}}\n\
         teardown: never\nlaunch: {{with: script, master_port: auto, gate: port, nproc_per_node: 1, command: [python3, {meet}]}}\n",
        dir = sshd.dir.path().display(),
        user = current_user(),
        port = sshd.port
    );
    let file = sshd.write("inventory.yaml", &text);
    for (command, expected) in [("up", "met at ::1"), ("ps", "ended: exit 0"), ("down", "a")] {
        let out = run_orchestrate(&sshd, &[command, &file]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains(expected), "{command}: {:?}\n{text}", out.status);
    }
    assert!(!sshd.path("run/six").exists(), "the run directory is removed");
}

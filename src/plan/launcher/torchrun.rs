//! torchrun: one agent a host, the workers through our wrapper.
//!
//! Flags with underscores, since older torch rejects dashes (huggingface/pytorch-image-models#1742). Static by default: under c10d
//! `--node_rank` is ignored and ranks follow the sorted node descriptors (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), so
//! it is never given there; who hosts the store is said with `is_host`, since guessing it fails behind NAT and aliases
//! (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py).

use crate::inventory::{Job, Payload, Rendezvous};
use crate::plan::site::Site;
use crate::plan::world::World;

pub(super) fn start(
    job: &Job,
    world: &World,
    site: &Site,
    host: usize,
    rendezvous: Rendezvous,
    worker: &str,
    payload: &Payload,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut argv =
        vec!["torchrun".to_owned(), format!("--nnodes={}", world.addresses.len()), format!("--nproc_per_node={}", world.nproc_text())];
    match rendezvous {
        Rendezvous::Static => argv.extend([
            format!("--node_rank={host}"),
            format!("--master_addr={}", world.master()),
            format!("--master_port={}", world.port),
        ]),
        Rendezvous::C10d => argv.extend([
            "--rdzv_backend=c10d".to_owned(),
            format!("--rdzv_endpoint={}:{}", bracketed(world.master()), world.port),
            format!("--rdzv_id={}", site.run),
            format!("--rdzv_conf=is_host={}", u8::from(host == 0)),
            format!("--local_addr={}", world.addresses.get(host).map_or("", String::as_str)),
        ]),
    }
    // Without it torchrun leaves a folder in /tmp; in a container that goes with the container, and folders made by its root in the run
    // directory could not be removed by the ssh user.
    if !site.contained {
        argv.push(format!("--log_dir={}/torchelastic", site.run_dir()));
    }
    argv.extend(["--no_python", "/bin/sh", worker].map(str::to_owned));
    let (command, interpreter) = worker_command(&job.launch.python, payload);
    let mut needs = vec!["torchrun".to_owned()];
    needs.extend(interpreter);
    (argv, command, needs)
}

/// What torchrun itself would make of the words after its flags: a script for the interpreter, `-m module`, or with `--no_python` a program.
fn worker_command(python: &str, payload: &Payload) -> (Vec<String>, Option<String>) {
    let Payload::Argv(words) = payload else { return (Vec::new(), None) };
    match words.split_first() {
        Some((first, rest)) if first == "--no_python" || first == "--no-python" => (rest.to_vec(), rest.first().cloned()),
        _ => {
            let mut command = vec![python.to_owned(), "-u".to_owned()];
            command.extend(words.iter().cloned());
            (command, Some(python.to_owned()))
        }
    }
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_command_is_what_torchrun_would_run() {
        let words = |w: &[&str]| Payload::Argv(w.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(worker_command("python3", &words(&["train.py", "-m", "x"])).0, ["python3", "-u", "train.py", "-m", "x"]);
        assert_eq!(worker_command("python3", &words(&["-m", "pkg.train"])).0, ["python3", "-u", "-m", "pkg.train"]);
        assert_eq!(worker_command("python3", &words(&["--no_python", "./a", "b"])).0, ["./a", "b"]);
    }
}

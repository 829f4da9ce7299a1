//! The files that the job writes for its nodes: the wrappers of a bare host, and what they read.

use std::collections::BTreeMap;

use super::inputs::{RUN_VARIABLES, SLURM_TASK_VARIABLES, ScriptInputs, host_path};
use super::{step_tasks, task};
use crate::plan::action::run_files::{pipe_text, settings_text};
use crate::text::shell_template::{self, variable};

/// The function that writes all files.
pub(super) fn write_files_text(inputs: &ScriptInputs<'_>) -> String {
    let mut text = String::from(
        "\n# The files of every node: what is this job's own, then the wrappers around\n# launcher and ranks.\nwrite_files() {\n",
    );
    for (name, body) in files(inputs) {
        text.push_str(&here_document(&name, &body));
    }
    text.push_str("}\n");
    text
}

fn files(inputs: &ScriptInputs<'_>) -> Vec<(String, String)> {
    let job = &inputs.slurm.job;
    let mut files = vec![
        ("env".to_owned(), env_text(inputs)),
        ("argv".to_owned(), argv_text(&inputs.spec.argv)),
        ("worker.argv".to_owned(), argv_text(&inputs.spec.worker_argv)),
    ];
    // The names and numbers of the nodes are the job's: it writes the hostfile itself.
    files.extend(inputs.spec.files.iter().filter(|(name, _)| *name != "hostfile").map(|(name, text)| (name.clone(), text.clone())));
    files.push(("settings".to_owned(), settings_text(job.launch.stop_grace.as_secs(), 300, !job.is_elastic())));
    if !inputs.slurm.fabric_addresses.is_empty() {
        let lines: String = inputs.slurm.fabric_addresses.iter().map(|(host, address)| format!("{host} {address}\n")).collect();
        files.push(("fabric".to_owned(), lines));
    }
    let look = format!("{}{}", include_str!("../../../assets/slurm/look.sh"), task::mount_sources_text(inputs));
    let scripts = [
        ("look", look.as_str()),
        ("task", &task::task_text(inputs)),
        ("stop-node", include_str!("../../../assets/slurm/stop.sh")),
        ("start", include_str!("../../../assets/slurm/start.sh")),
        ("keeper", include_str!("../../../assets/keeper.sh")),
        ("node", include_str!("../../../assets/node.sh")),
        ("worker", include_str!("../../../assets/worker.sh")),
        ("lib", include_str!("../../../assets/lib.sh")),
        ("reap", include_str!("../../../assets/reap.sh")),
        ("pipe", &pipe_text(job.max_log_bytes)),
        ("append", include_str!("../../../assets/append.sh")),
    ];
    files.extend(scripts.map(|(name, text)| (name.to_owned(), text.to_owned())));
    files.extend(step_tasks::files(inputs));
    files.extend(task::container_files(inputs));
    files
}

/// A file as a here-document. Its end is a word that no line of it is.
fn here_document(name: &str, body: &str) -> String {
    let ends = |word: &str| body.lines().any(|line| line == word);
    let mut word = "END".to_owned();
    while ends(&word) {
        word.push('_');
    }
    let newline = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
    format!("  cat >\"$dir/files/{name}\" <<'{word}'\n{body}{newline}{word}\n")
}

/// Words as the positional parameters of the shell that reads them, a flag a line.
fn argv_text(argv: &[String]) -> String {
    let devices = variable("ORCH_DEVICES");
    let mut text = String::new();
    if argv.contains(&devices) {
        text.push_str("# A word for each GPU that SLURM gave to this node.\n# shellcheck disable=SC2086\n");
    }
    text.push_str("set --");
    for word in argv {
        let flag = word.starts_with("--");
        text.push_str(if flag { " \\\n  " } else { " " });
        // A word for each GPU.
        text.push_str(&if *word == devices { "$ORCH_DEVICES".to_owned() } else { shell_template::quote(word) });
    }
    text.push('\n');
    text
}

/// What the launcher and the ranks get. In each node's copy it follows the lines of the job and of the node.
fn env_text(inputs: &ScriptInputs<'_>) -> String {
    let mut env: BTreeMap<String, String> = inputs.spec.env.clone();
    if let Some(workdir) = env.get_mut("ORCH_WORKDIR") {
        *workdir = host_path(workdir);
    }
    let own = inputs.slurm.job.hosts.first().map(|host| host.env.clone()).unwrap_or_default();
    for (name, value) in inputs.container_settings().map(|spec| spec.env.clone()).unwrap_or_default() {
        if !own.contains_key(&name) {
            env.insert(name, value);
        }
    }
    let mut text = format!("export {}\n", RUN_VARIABLES.join(" "));
    for (name, value) in &env {
        if *value != variable(name) {
            text.push_str(&format!("export {name}={}\n", shell_template::quote(value)));
        }
    }
    if inputs.slurm.settings.nodes > 1 {
        text.push_str("# The interface by which this node reaches the others, unless the inventory or\n# the image says another.\n");
        text.push_str("if [ -n \"$ORCH_INTERFACE\" ]; then\n");
        for (name, sign) in [("NCCL_SOCKET_IFNAME", "="), ("GLOO_SOCKET_IFNAME", "")] {
            text.push_str(&format!("  [ -n \"${{{name}+set}}\" ] || export {name}=\"{sign}$ORCH_INTERFACE\"\n"));
        }
        text.push_str("fi\n");
    }
    text.push_str(&format!("# They count nodes, and programs would take them for ranks.\nunset {SLURM_TASK_VARIABLES}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn here_documents_end_where_their_text_ends() {
        assert_eq!(here_document("script", "a\nEND\nb"), "  cat >\"$dir/files/script\" <<'END_'\na\nEND\nb\nEND_\n");
        assert_eq!(here_document("x", ""), "  cat >\"$dir/files/x\" <<'END'\nEND\n");
    }
}

//! The head of the script: what it is, the options of sbatch, and the settings that the rest reads.

use super::inputs::{ScriptInputs, host_path, quote_host_path};
use crate::inventory::{ContainerUser, SlurmContainer, SlurmSettings};
use crate::text::shell_template;

pub(super) fn header_text(inputs: &ScriptInputs<'_>) -> String {
    let mut text = title(inputs);
    for option in sbatch_options(inputs) {
        text.push_str(&format!("#SBATCH {}\n", quote_option(&option)));
    }
    // Shellcheck does not see that the trap calls these functions.
    text.push_str("\n# shellcheck disable=SC2317\nset -u\n\n");
    text.push_str(&settings(inputs));
    text
}

fn title(inputs: &ScriptInputs<'_>) -> String {
    let settings = &inputs.slurm.settings;
    let name = &inputs.inventory.name;
    let nodes = if settings.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", settings.nodes) };
    let gpus = match settings.gpus_per_node {
        0 => "without GPUs".to_owned(),
        1 => "with 1 GPU each".to_owned(),
        count => format!("with {count} GPUs each"),
    };
    let place = match settings.container {
        SlurmContainer::None => "on the nodes themselves".to_owned(),
        mode => format!("in a container ({})", mode.as_str()),
    };
    let launcher = inputs.slurm.job.launch.launcher.as_str();
    let mut text = format!("#!/bin/bash\n# {name}: {nodes} {gpus};\n# ranks started by {launcher}, {place}.\n");
    text.push_str(&format!("# Submit it with: sbatch {name}.sbatch\n"));
    if !inputs.slurm.job.secret_names.is_empty() {
        let names = inputs.slurm.job.secret_names.join(" ");
        text.push_str(&format!(
            "# Secrets ({names}):\n# before that, write a line `export NAME='value'` for each into the file\n# secrets_file below, mode 0600.\n"
        ));
    }
    text.push_str(&super::step_tasks::title_text(inputs));
    text.push_str(
        "# Options on sbatch's command line go before those below. One task a node: the\n# launcher there starts the node's ranks.\n",
    );
    text
}

/// Whether the user's own options of sbatch say how many GPUs the job gets.
pub(crate) fn requests_gpus_by_args(settings: &SlurmSettings) -> bool {
    settings.args.iter().any(|arg| ["--gres=", "--gpus=", "--gpus-per-task=", "-G"].iter().any(|own| arg.starts_with(own)))
}

fn sbatch_options(inputs: &ScriptInputs<'_>) -> Vec<String> {
    let slurm = inputs.slurm;
    let settings = &slurm.settings;
    let mut options = vec![format!("--job-name={}", inputs.inventory.name)];
    options.extend(settings.partition.iter().map(|name| format!("--partition={name}")));
    // Some versions refuse GPUs per node without a number of tasks.
    options.extend([format!("--nodes={}", settings.nodes), format!("--ntasks={}", settings.nodes), "--ntasks-per-node=1".to_owned()]);
    if settings.gpus_per_node > 0 && !requests_gpus_by_args(settings) {
        options.push(format!("--gpus-per-node={}", settings.gpus_per_node));
    }
    options.extend(settings.cpus_per_task.map(|count| format!("--cpus-per-task={count}")));
    options.extend(settings.time.iter().map(|(text, _)| format!("--time={text}")));
    options.push(format!("--signal=B:USR1@{}", slurm.signal_secs()));
    options.push(if settings.requeue { "--requeue" } else { "--no-requeue" }.to_owned());
    options.extend(["--output=%x-%j.out".to_owned(), "--open-mode=append".to_owned()]);
    options.extend(settings.args.iter().cloned());
    options
}

/// One word of an `#SBATCH` line. sbatch reads it, not a shell: a backslash before a character takes its meaning away, also that of `#`,
/// which otherwise begins a comment even between quotes.
fn quote_option(option: &str) -> String {
    let mut quoted = String::with_capacity(option.len());
    for c in option.chars() {
        if matches!(c, ' ' | '"' | '\'' | '\\' | '#') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

/// Variables of the script, a line each.
fn settings(inputs: &ScriptInputs<'_>) -> String {
    let settings = &inputs.slurm.settings;
    let ranks = inputs.layout.local_world_size(0);
    let port = match inputs.slurm.job.launch.master_port {
        Some(port) => port.to_string(),
        None => "$((10000 + SLURM_JOB_ID % 50000))".to_owned(),
    };
    let secrets = if inputs.slurm.job.secret_names.is_empty() { "''" } else { "$root/$name/slurm-secrets" };
    let lines = [
        (format!("name={}", inputs.inventory.name), ""),
        (format!("root={}", quote_host_path(&inputs.inventory.run_dir)), "run_dir: every node must see it under this path"),
        (format!("nodes={}", settings.nodes), "as --nodes above"),
        (format!("gpus_per_node={}", settings.gpus_per_node), ""),
        (format!("ranks_per_node={ranks}"), ""),
        (
            format!("master_port={port}"),
            if inputs.slurm.job.launch.master_port.is_none() { "two jobs on a node take two ports" } else { "" },
        ),
        (format!("stop_before={}", inputs.slurm.signal_secs()), "seconds, as in --signal above"),
        (format!("secrets_file={secrets}"), ""),
    ];
    let mut text = String::new();
    for (line, comment) in lines {
        text.push_str(&if comment.is_empty() { format!("{line}\n") } else { format!("{line:<46} # {comment}\n") });
    }
    text.push_str(&super::step_tasks::settings_text(inputs));
    text.push_str(&container_options(inputs));
    text
}

/// Options of srun for pyxis. They are srun's alone: sbatch may not know them.
fn container_options(inputs: &ScriptInputs<'_>) -> String {
    if inputs.container() != SlurmContainer::Pyxis {
        return "container=()\n".to_owned();
    }
    let image = super::task::pyxis_image(inputs);
    let spec = inputs.container_settings();
    let mut mounts = vec!["\0root\0/\0name\0:\0root\0/\0name\0".to_owned()];
    for mount in spec.map(|spec| spec.mounts.as_slice()).unwrap_or_default() {
        let end = if mount.read_only { ":ro" } else { "" };
        mounts.push(format!("{}:{}{end}", host_path(&mount.source), mount.target));
    }
    let user =
        if spec.is_some_and(|spec| spec.user == ContainerUser::SshUser) { "--no-container-remap-root" } else { "--container-remap-root" };
    let words = [
        format!("--container-image={image}"),
        format!("--container-mounts={}", mounts.join(",")),
        user.to_owned(),
        "--container-writable".to_owned(),
        "--no-container-mount-home".to_owned(),
        "--container-env=SLURMD_NODENAME,SLURM_LOCALID,CUDA_VISIBLE_DEVICES,NVIDIA_VISIBLE_DEVICES,ORCH_SECRETS".to_owned(),
    ];
    let quoted = |word: &String| match shell_template::quote(word) {
        // Commas separate nothing here, but look as if they did.
        plain if plain.contains(',') && !plain.starts_with(['"', '\'']) => format!("'{plain}'"),
        quoted => quoted,
    };
    let mut lines: String = words.iter().map(|word| format!("  {}\n", quoted(word))).collect();
    if super::step_tasks::has_steps(inputs) {
        lines.insert_str(0, super::step_tasks::pyxis_name_line());
    }
    format!("# Where the ranks run. The last option: without it the image's own values of\n# these variables win.\ncontainer=(\n{lines})\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_escape_special_characters_for_sbatch() {
        assert_eq!(quote_option("--account=lab"), "--account=lab");
        assert_eq!(quote_option("--comment=a \"b\" #1"), "--comment=a\\ \\\"b\\\"\\ \\#1");
    }
}

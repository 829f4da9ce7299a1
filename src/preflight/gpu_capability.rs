//! `gpu-capability`: what code for them must be compiled for, and whether the builds of `prepare` do it.

use super::context::{CheckContext, CheckedHost, gpu_field, gpu_skip_result};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-capability",
    area: CheckArea::Gpu,
    description: "GPUs have different compute capabilities, or a task compiles for other ones",
    probes: &[Probe::Gpus],
    judge,
};

/// The variable that says for which GPUs torch's extensions are compiled.
const ARCH_LIST: &str = "TORCH_CUDA_ARCH_LIST";

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let compared =
        context.compare_hosts(Level::Warn, "compile kernels for all of them (TORCH_CUDA_ARCH_LIST)", |host| gpu_field(host, "compute_cap"));
    let lists = arch_lists(context);
    context.hosts.iter().zip(compared).map(|(host, cell)| missing_architecture(host, &lists).unwrap_or(cell)).collect()
}

/// The lists of the tasks, each with the task's name: what one host builds is installed on others.
fn arch_lists<'a>(context: &CheckContext<'a>) -> Vec<(&'a str, &'a str)> {
    let tasks = context.job.tasks.iter();
    let lists = tasks.flat_map(|task| task.hosts.iter().flatten().filter_map(|own| Some((task.name.as_str(), own.env.get(ARCH_LIST)?))));
    let mut lists: Vec<(&str, &str)> = lists.map(|(name, list)| (name, list.as_str())).collect();
    lists.dedup();
    lists
}

fn missing_architecture(host: &CheckedHost<'_>, lists: &[(&str, &str)]) -> Option<CheckResult> {
    if gpu_skip_result(host).is_some() {
        return None;
    }
    let rows = host.probe_output.gpu_rows();
    let capabilities = rows.iter().filter_map(|row| row.get("compute_cap").copied());
    let (capability, (task, list)) = capabilities
        .flat_map(|capability| lists.iter().map(move |list| (capability, *list)))
        .find(|(capability, (_, list))| parse_version(capability).is_some_and(|capability| !is_covered(list, capability)))?;
    let message = format!("the GPUs need {capability}, and task `{task}` compiles for {list} ({ARCH_LIST})");
    Some(CheckResult::new(Level::Warn, message, format!("add {capability} to {ARCH_LIST} of the task, or end the list with +PTX")))
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether code for one of the list runs on a GPU: binaries run on the same major version with the same or a later minor one, PTX on every later
/// one. A word that is no version (`Hopper`) is taken for a match.
fn is_covered(list: &str, (major, minor): (u32, u32)) -> bool {
    list.split([' ', ';', ',']).filter(|word| !word.is_empty()).any(|word| {
        let (version, has_ptx) = word.strip_suffix("+PTX").map_or((word, false), |version| (version, true));
        let plain = version.trim_end_matches(['a', 'f']);
        let Some((own_major, own_minor)) = parse_version(plain) else { return true };
        if plain.len() < version.len() {
            return (own_major, own_minor) == (major, minor);
        }
        own_major == major && own_minor <= minor || has_ptx && (own_major, own_minor) <= (major, minor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::tests::{TEST_INVENTORY, evaluate_with_changes};

    #[test]
    fn binaries_cover_their_major_version_and_ptx_what_comes_later() {
        for list in ["9.0", "7.5 8.0;9.0", "8.0+PTX", "9.0+PTX", "Hopper", "9.0a"] {
            assert!(is_covered(list, (9, 0)), "{list}");
        }
        for list in ["7.5", "8.0 8.6 8.9", "10.0+PTX", "9.1", "10.0"] {
            assert!(!is_covered(list, (9, 0)), "{list}");
        }
        assert!(is_covered("8.0", (8, 6)) && !is_covered("9.0a", (9, 1)));
    }

    #[test]
    fn task_that_compiles_for_other_gpus_is_named() {
        let task = |list: &str| {
            let task = format!("prepare: [{{ name: build, hosts: master, env: {{ TORCH_CUDA_ARCH_LIST: '{list}' }}, run: make }}]\n");
            evaluate_with_changes(&format!("{TEST_INVENTORY}{task}"), "gpu-capability", &[])
        };
        let found = task("7.5 8.6");
        assert_eq!(found.len(), 3, "the wheel goes to all hosts");
        for cell in found {
            assert_eq!(cell.level, Level::Warn);
            assert_eq!(cell.message, "the GPUs need 9.0, and task `build` compiles for 7.5 8.6 (TORCH_CUDA_ARCH_LIST)");
        }
        assert!(task("8.6+PTX").iter().all(|cell| cell.level == Level::Pass));
    }
}

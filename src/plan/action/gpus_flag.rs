//! Which GPUs a container gets.

use crate::inventory::{self, ContainerGpus};

/// What `--gpus` gets: docker reads the value as CSV, so a list needs quotes of its own (mission.md 5.7). A count becomes the first `idle`
/// ones that the inventory allows; where the hosts were not asked, the first ones.
pub(crate) fn format_gpus_flag(gpus: &ContainerGpus, host: &inventory::GpuSelection, idle: Option<&[u32]>) -> Option<String> {
    let device = |list: &[u32]| format!("\"device={}\"", list.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    match (gpus, host) {
        (ContainerGpus::None, _) => None,
        (ContainerGpus::List(list), _) | (ContainerGpus::All, inventory::GpuSelection::List(list)) => Some(device(list)),
        (ContainerGpus::All, _) => Some("all".to_owned()),
        (ContainerGpus::Count(count), _) => Some(device(&choose_gpus(*count, host, idle))),
    }
}

/// The first `count` GPUs that are idle and allowed.
pub(crate) fn choose_gpus(count: u32, host: &inventory::GpuSelection, idle: Option<&[u32]>) -> Vec<u32> {
    let allowed: Vec<u32> = match (host, idle) {
        (inventory::GpuSelection::List(list), None) => list.clone(),
        (inventory::GpuSelection::List(list), Some(idle)) => list.iter().copied().filter(|i| idle.contains(i)).collect(),
        (_, None) => (0..count).collect(),
        (_, Some(idle)) => idle.to_vec(),
    };
    allowed.into_iter().take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_list_is_quoted_for_docker() {
        let list = inventory::GpuSelection::List(vec![4, 5]);
        assert_eq!(format_gpus_flag(&ContainerGpus::All, &list, None).as_deref(), Some("\"device=4,5\""));
        assert_eq!(format_gpus_flag(&ContainerGpus::All, &inventory::GpuSelection::Any, None).as_deref(), Some("all"));
        assert_eq!(format_gpus_flag(&ContainerGpus::None, &inventory::GpuSelection::Any, None), None);
    }

    #[test]
    fn gpu_count_picks_idle_gpus() {
        let count = ContainerGpus::Count(2);
        assert_eq!(format_gpus_flag(&count, &inventory::GpuSelection::Any, Some(&[1, 3, 6])).as_deref(), Some("\"device=1,3\""));
        assert_eq!(
            format_gpus_flag(&count, &inventory::GpuSelection::List(vec![3, 4, 6]), Some(&[1, 3, 6])).as_deref(),
            Some("\"device=3,6\"")
        );
        assert_eq!(choose_gpus(2, &inventory::GpuSelection::Any, Some(&[])), Vec::<u32>::new());
    }
}

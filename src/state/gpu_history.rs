//! The values of a host's GPUs over time.

use std::ops::Deref;

use crate::event::{GpuSample, UnixMillis};

/// One look at a GPU, in percent; for graphs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuTracePoint {
    /// The index of the GPU.
    pub index: u32,
    pub at: UnixMillis,
    pub utilization: Option<f32>,
    /// Memory in use, of all.
    pub memory: Option<f32>,
    /// Power, of the limit.
    pub power: Option<f32>,
    pub temperature: Option<f32>,
}

impl GpuTracePoint {
    pub(crate) fn from_sample(gpu: &GpuSample, at: UnixMillis) -> Self {
        let share = |part: Option<f32>, whole: Option<f32>| {
            part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole * 100.0)
        };
        GpuTracePoint {
            index: gpu.index,
            at,
            utilization: gpu.utilization,
            memory: share(gpu.memory_used, gpu.memory_total),
            power: share(gpu.power, gpu.power_limit),
            temperature: gpu.temperature,
        }
    }
}

/// The values of a host's GPUs at one time. The sums are kept, since every frame shows the means of the last rounds of all hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuRound {
    points: Vec<GpuTracePoint>,
    pub(crate) utilization: ValueSum,
    pub(crate) power: ValueSum,
}

impl GpuRound {
    pub(super) fn from_samples(gpus: &[GpuSample], at: UnixMillis) -> GpuRound {
        let points: Vec<GpuTracePoint> = gpus.iter().map(|gpu| GpuTracePoint::from_sample(gpu, at)).collect();
        let (mut utilization, mut power) = (ValueSum::default(), ValueSum::default());
        for point in &points {
            utilization.add(ValueSum::of(point.utilization));
            power.add(ValueSum::of(point.power));
        }
        GpuRound { points, utilization, power }
    }
}

impl Deref for GpuRound {
    type Target = [GpuTracePoint];

    fn deref(&self) -> &[GpuTracePoint] {
        &self.points
    }
}

/// A sum of values, and their number: those that are not known do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ValueSum {
    sum: f32,
    count: f32,
}

impl ValueSum {
    fn of(value: Option<f32>) -> ValueSum {
        value.map_or_else(ValueSum::default, |sum| ValueSum { sum, count: 1.0 })
    }

    pub(crate) fn add(&mut self, other: ValueSum) {
        self.sum += other.sum;
        self.count += other.count;
    }

    pub(crate) fn mean(self) -> Option<f32> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

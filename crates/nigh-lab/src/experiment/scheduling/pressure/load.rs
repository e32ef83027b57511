//! What shares the processors, and what work more would do to it: estimates for who knows how much work each has.

#[derive(Clone, Copy, Debug)]
struct Job {
    left_us: f64,
    /// What a microsecond costs by which it ends later.
    weight: f64,
}

/// All that starts or runs, or is about to.
#[derive(Clone, Debug)]
pub(super) struct Load {
    processors: f64,
    jobs: Vec<Job>,
}

impl Load {
    pub(super) fn new(processors: u16) -> Self {
        Self { processors: f64::from(processors), jobs: Vec::new() }
    }

    pub(super) fn add(&mut self, left_us: f64, weight: f64) {
        self.jobs.push(Job { left_us, weight });
    }

    /// One job more would slow no other down.
    pub(super) fn has_idle_processor(&self) -> bool {
        (self.jobs.len() as f64) < self.processors
    }

    /// What all jobs do of their work while one of them, or one more, does so much of its own.
    fn done_beside(&self, work_us: f64) -> f64 {
        self.jobs.iter().map(|job| job.left_us.min(work_us)).sum()
    }

    /// Microseconds until one of them ends that has so much work before it.
    pub(super) fn end_of(&self, left_us: f64) -> f64 {
        (self.done_beside(left_us) / self.processors).max(left_us)
    }

    /// Microseconds until one more with so much work would end.
    pub(super) fn end_of_new(&self, work_us: f64) -> f64 {
        ((self.done_beside(work_us) + work_us) / self.processors).max(work_us)
    }

    /// What the others lose by one more with so much work.
    pub(super) fn loss_by_new(&self, work_us: f64) -> f64 {
        if self.has_idle_processor() {
            return 0.0;
        }
        self.jobs.iter().map(|job| job.left_us.min(work_us) * job.weight).sum::<f64>() / self.processors
    }

    /// Microseconds until a processor is idle, if nothing begins.
    pub(super) fn idle_processor_in(&self) -> f64 {
        if self.has_idle_processor() {
            return 0.0;
        }
        let mut left: Vec<f64> = self.jobs.iter().map(|job| job.left_us).collect();
        left.sort_by(f64::total_cmp);
        let ends = left.len() - self.processors as usize;
        left.get(ends).map_or(0.0, |left_us| self.end_of(*left_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_waits_for_an_idle_processor_or_slows_the_others_down() {
        let mut load = Load::new(2);
        load.add(100.0, 1.0);
        assert!(load.has_idle_processor() && load.end_of_new(50.0) == 50.0 && load.loss_by_new(50.0) == 0.0);
        load.add(300.0, 0.5);
        assert_eq!((load.idle_processor_in(), load.end_of(300.0)), (100.0, 300.0));
        // Three share two processors: it ends after 75, and the others are later by 25 each.
        assert_eq!((load.end_of_new(50.0), load.loss_by_new(50.0)), (75.0, 37.5));
        load.add(50.0, 1.0);
        // It ends after 75, the one of 100 after 50 more.
        assert_eq!(load.idle_processor_in(), 125.0);
    }
}

import './base.css';
import './actions.css';
import './timeline.css';

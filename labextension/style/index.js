import './actions.css';
import './base.css';
import './timeline.css';
